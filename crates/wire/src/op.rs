//! What a client asks of a coordinator or master, and what it answers.
