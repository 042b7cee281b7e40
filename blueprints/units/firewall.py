"""Open the ports of a workload in the firewall that rules the host, close them, and prove that they are closed.

A rule that accepts in a table of our own opens nothing: nftables evaluates every base chain of a hook, and one that
drops has the last word. So the rule goes into the firewall that is there: by firewalld's or ufw's own program where one
of them is active, otherwise at the head of each base chain of nftables for incoming packets. Chains of iptables get
theirs by iptables, which cannot read rules that nft has written.

A port belongs to one account at a time: the containers share the network of the host, so a second one could not listen
on it, and the end of the first one would close it. A link `.ports/PROTOCOL-PORT` to the account says whose it is.
"""

from __future__ import annotations

from blueprints.units.values import Unit

REFUSED = 65
"""Exit code of the scripts if the host's firewall cannot be handled. The last line of standard error says why."""

_CHAINS = r"""
quiet() { "$@" >/dev/null 2>&1; }
has() { quiet command -v "$1"; }
refuse() { echo "$*" >&2; exit 65; }
# Asks systemd first, because a busy firewalld may not answer in time.
firewalld() { has firewall-cmd && { quiet systemctl is-active firewalld || quiet firewall-cmd --state; }; }
ruler() {
  if firewalld; then echo firewalld
  elif has ufw && LC_ALL=C ufw status 2>/dev/null | grep -q '^Status: active'; then echo ufw
  elif has nft; then echo nftables
  fi
}
# Prints "family table chain" of each base chain for incoming packets.
chains() {
  nft list chains | while read -r first second third rest; do
    case $first in
      table) family=$second table=$third;;
      chain) chain=$second;;
      type)
        case "$family $second $third $rest" in
          "ip filter hook input "*|"ip6 filter hook input "*|"inet filter hook input "*) echo "$family $table $chain";;
        esac;;
    esac
  done
}
tables() { case "$1 $2 $3" in "ip filter INPUT") echo iptables;; "ip6 filter INPUT") echo ip6tables;; esac; }
rule() { echo "-p $1 --dport $2 -j ACCEPT"; }
"""

# $1 account, $2 protocol, $3 port; in the folder of the accounts. Prints the unit that has the port, if it is another
# one's, or why the port cannot be claimed. A unit of an earlier version has no link, but what it has opened is in its
# list. The folder of links may go away at any time, with the last link of another account.
_CLAIM = r"""
holder() {
  for try in 1 2 3; do
    mkdir -p .ports && ln -s "$1" ".ports/$2-$3" 2>/dev/null
    there=$(readlink ".ports/$2-$3") || continue
    if [ "$there" = "$1" ]; then
      there=$(opener "$1" "$2 $3")
      [ -n "$there" ] || return 0
    fi
    [ ! -d "$there" ] || { cat "$there/unit" 2>/dev/null || echo "the account $there"; return 0; }
    rm -f ".ports/$2-$3"
  done
  echo "something else: $PWD/.ports/$2-$3 cannot be made"
}
opener() {
  for list in */ports; do
    [ "$list" = "$1/ports" ] || ! grep -qsxE "[a-z]+ $2" "$list" || { echo "${list%/ports}"; return; }
  done
}
claim_all() {
  account=${folder##*/}
  cd -- "${folder%/*}" || exit 71
  while [ $# -gt 0 ]; do
    unit=$(holder "$account" "$1" "$2")
    [ -z "$unit" ] ||
      refuse "The port $2/$1 of this host belongs to $unit. Use another port, or wait until that lease has ended."
    shift 2
  done
}
"""

# $1 folder of the accounts, $2 account. Gives up the ports of an account.
RELEASE = r"""
cd -- "$1" 2>/dev/null || exit 0
for each in .ports/*; do
  [ "$(readlink "$each")" != "$2" ] || rm -f "$each" || exit 74
done
rmdir .ports 2>/dev/null
exit 0
"""

# $1 folder of the account, $2 comment; then protocol and port in turn. What is opened is written down first.
OPEN = (
    _CHAINS
    + _CLAIM
    + r"""
folder=$1 comment=$2
shift 2
[ $# -gt 0 ] || exit 0
by=$(ruler)
[ -n "$by" ] || refuse "The ports of the workload cannot be opened: this host has neither firewalld, ufw nor nft."
claim_all "$@"
while [ $# -gt 0 ]; do
  grep -qsxF "$by $1 $2" "$folder/ports" || case $by in
    firewalld)
      if ! quiet firewall-cmd --query-port="$2/$1"; then
        echo "$by $1 $2" >>"$folder/ports"
        quiet firewall-cmd --add-port="$2/$1" || refuse "firewalld did not open the port $2/$1."
      fi;;
    ufw)
      if ! LC_ALL=C ufw show added | grep -qE "^ufw allow (proto $1 to any port $2|$2/$1)( |\$)"; then
        echo "$by $1 $2" >>"$folder/ports"
        quiet ufw allow proto "$1" to any port "$2" comment "$comment" || refuse "ufw did not open the port $2/$1."
      fi;;
    nftables)
      echo "$by $1 $2" >>"$folder/ports"
      chains | while read -r family table chain; do
        program=$(tables "$family" "$table" "$chain")
        if [ -n "$program" ] && has "$program"; then
          "$program" -w 5 -I INPUT $(rule "$1" "$2") -m comment --comment "$comment"
        else
          nft "insert rule $family $table $chain $1 dport $2 accept comment \"$comment\""
        fi || exit 1
      done >&2 || refuse "nftables did not open the port $2/$1.";;
  esac
  shift 2
done
"""
)

# $1 folder of the account, $2 comment. Prints the rules that are left. May be repeated.
CLOSE = (
    _CHAINS
    + r"""
folder=$1 comment=$2
there() { LC_ALL=C nft -a list ruleset 2>/dev/null | grep -F "comment \"$comment\""; }
# Ends at a rule that cannot be deleted, for otherwise it would be found again.
nftables_closed() {
  has nft || return 0
  nft -a list ruleset | while read -r first second third rest; do
    case $first in
      table) family=$second table=$third;;
      chain) chain=$second;;
      *)
        case "$first $second $third $rest" in
          *"comment \"$comment\""*"# handle "*)
            handle=${rest##*# handle }
            [ -n "$(tables "$family" "$table" "$chain")" ] && has "$(tables "$family" "$table" "$chain")" ||
              nft delete rule "$family" "$table" "$chain" handle "$handle";;
        esac;;
    esac
  done
}
if [ -f "$folder/ports" ]; then
  while read -r by protocol port; do
    case $by in
      firewalld)
        if firewalld; then
          quiet firewall-cmd --remove-port="$port/$protocol"
          if quiet firewall-cmd --query-port="$port/$protocol"; then echo "firewalld: $port/$protocol"; fi
        fi;;
      ufw)
        if has ufw; then
          quiet ufw --force delete allow proto "$protocol" to any port "$port"
          LC_ALL=C ufw show added 2>/dev/null | grep -F "'$comment'" | grep -E "[ /]($port|$protocol)( |/|\$)"
        fi;;
      nftables)
        for program in iptables ip6tables; do
          has $program || continue
          n=0
          while [ $n -lt 20 ] &&
            quiet $program -w 5 -D INPUT $(rule "$protocol" "$port") -m comment --comment "$comment"
          do n=$((n + 1)); done
          $program -w 5 -S INPUT 2>/dev/null | grep -F -- "--comment \"$comment\"" | grep -F -- "--dport $port "
        done;;
    esac
  done <"$folder/ports"
  if grep -q '^nftables ' "$folder/ports"; then nftables_closed >&2; there; fi
fi
exit 0
"""
)


def opening(unit: Unit) -> list[str]:
    """Return the arguments of `OPEN`."""
    return [unit.folder, unit.comment, *(word for port in unit.ports for word in (port.protocol, str(port.number)))]
