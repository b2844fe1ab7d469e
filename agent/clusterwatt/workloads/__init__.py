"""Who holds which GPU, in the words of schedulers, container runtimes and the kernel."""
