"""The kind `dpf_cluster`: a Kubernetes cluster that DPUs join."""
