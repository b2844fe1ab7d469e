"""Pods that hold GPUs: what the kubelet has assigned, and whose pods they are.

`kubelet` asks for the assignments, `cluster` the API for names, owners and labels; `collector` puts the two
together with the pods' cgroups.
"""
