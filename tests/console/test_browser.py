"""The console in a real browser: live, by keyboard, narrow, dark; and what is done from button to event."""

from __future__ import annotations

import pytest
from django.urls import reverse
from playwright.sync_api import expect

from blueprints.models import Blueprint
from drydock.middleware import POLICY, POLICY_HEADER
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource
from leases.operations import leases
from leases.operations.callers import caller
from tests.admin.conftest import page, rows_of

LONG = "a-name-without-any-place-to-break-" * 6


@pytest.fixture
def waiting(blueprint, ask):
    """A lease that has all there is, and one that waits for it."""
    blueprint(max_resources=1, config={"capacity": {"slots": 1}})
    first = ask(ttl="2h", labels={"team": "blue"}, name="first")
    settle()
    second = ask(name="second")
    settle()
    return first, second


def test_a_list_and_a_page_follow_their_leases_without_reloading(look, site, waiting):
    first, second = waiting
    single, listed = look(site), look(site)
    single.goto(page(second))
    listed.goto(rows_of(Lease))
    head, row = single.locator(".dd-head .dd-badge").first, listed.locator("#result_list tbody tr").first
    expect(head).to_contain_text("pending")
    expect(row).to_contain_text("pending")
    expect(single.locator(".dd-panel-why")).to_contain_text("Position in the queue: 1.")
    for one in (single, listed):
        one.evaluate("window.ddSame = true")
    leases.release(caller("ada"), first.pk)
    settle()
    expect(head).to_contain_text("active")
    expect(row).to_contain_text("active")
    for one in (single, listed):
        assert one.evaluate("window.ddSame"), "the page was loaded again"


def test_an_act_goes_from_its_button_through_the_question_to_the_event(look, site, waiting):
    first, _ = waiting
    shown = look(site)
    shown.goto(page(first))
    shown.locator(".object-tools").get_by_role("link", name="Release").click()
    expect(shown.locator("#content")).to_contain_text("The lease ends now")
    assert Lease.objects.get(pk=first.pk).release_wanted == ""
    shown.get_by_label("Message").fill("enough")
    shown.get_by_role("button", name="Release", exact=True).click()
    expect(shown.locator(".messagelist")).to_contain_text("The lease is being released.")
    expect(shown.locator(".dd-panel-timeline")).to_contain_text("enough")
    event = Event.objects.get(lease=first, to_state="released")
    assert (event.actor, event.reason) == ("chief", "released_by_operator")


def test_the_keyboard_searches_and_the_button_copies(look, site, waiting):
    first, _ = waiting
    shown = look(site)
    shown.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown.goto(reverse("admin:index"))
    shown.keyboard.press("/")
    expect(shown.locator("#dd-search-words")).to_be_focused()
    shown.keyboard.type("team=blue")
    shown.keyboard.press("Enter")
    expect(shown.locator("#content h2", has_text="first")).to_be_visible()
    button = shown.locator(".dd-elsewhere .dd-copy button").first
    button.click()
    expect(button).to_have_text("Copied")
    assert shown.evaluate("navigator.clipboard.readText()") == f"drydock show {first.pk}"
    shown.locator("#dd-search-words").focus()
    shown.keyboard.press("/")
    expect(shown.locator("#dd-search-words")).to_have_value("/")
    shown.keyboard.press("Escape")
    expect(shown.locator("#dd-search-words")).not_to_be_focused()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_page_is_wider_than_a_phone_in_light_and_in_dark(look, site, waiting, dark):
    first, second = waiting
    Resource.objects.update(name=LONG, message=LONG, note=LONG)
    Lease.objects.filter(pk=first.pk).update(message=LONG, labels={LONG[:60]: LONG[:60]}, facts={"uri": LONG})
    pool = Blueprint.objects.get()
    shown = look(site, width=360, height=740, dark=dark)
    for at in (
        reverse("admin:index"), rows_of(Lease), page(first), page(second), page(Resource.objects.get()), page(pool),
        reverse("admin:blueprints_blueprint_add"),
    ):  # fmt: skip
        assert shown.goto(at).headers[POLICY_HEADER.lower()] == POLICY
        over = shown.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, f"{at} is {over} px too wide"
        light = shown.evaluate(
            "Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3))"
        )
        assert (light < 100) == dark, f"{at} is not {'dark' if dark else 'light'}"


def test_the_blueprint_form_follows_the_kind_and_its_button_checks_what_is_typed(look, site):
    shown = look(site)
    shown.goto(reverse("admin:blueprints_blueprint_add"))
    shown.locator("#id_kind").select_option("local_host")
    expect(shown.locator("[name='config.first_uid']")).to_be_visible()
    shown.locator("#id_kind").select_option("fake")
    shown.locator("#id_name").fill("rack")
    shown.locator("[name='config.boot_polls']").fill("many")
    check = shown.get_by_role("button", name="Check without saving")
    check.click()
    expect(shown.locator("#dd-trial")).to_contain_text("It must be a whole number.")
    shown.locator("[name='config.boot_polls']").fill("2")
    check.click()
    expect(shown.locator("#dd-trial")).to_contain_text("No problems found")
    expect(shown.locator("#dd-trial")).to_contain_text("Possible builds")
    assert not Blueprint.objects.exists()
