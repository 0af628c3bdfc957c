//! Durable writes: aligned buffers, io_uring, and the trait the simulator stands in for.
