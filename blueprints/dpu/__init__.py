"""DPUs: the kinds that lease them, their cards, images and clusters. See docs/kinds/dpf.md."""
