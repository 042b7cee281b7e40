"""The kind `dpf_image`: a BFB image that DPF has downloaded."""
