//! What is measured and how it is printed: latency tables, load, peers, reports.
