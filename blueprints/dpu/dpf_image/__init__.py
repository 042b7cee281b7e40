"""The kind `dpf_image`: an image that DPF has downloaded."""
