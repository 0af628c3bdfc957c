//! The store: coordinator, master, backup and the node loop they live on.
