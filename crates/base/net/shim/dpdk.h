/*
 * The functions of DPDK that Sprat uses. DPDK's frequent calls are inline functions on structures
 * with a private layout, so this shim calls them, for a burst of frames at a time.
 *
 * Functions that can fail return 0 or a negative errno. A function keeps a pointer that it was
 * given only if its comment says so.
 */
#ifndef SPRAT_DPDK_H
#define SPRAT_DPDK_H

#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;

/* A frame. Its owner owns the buffer too. */
struct sprat_frame {
	struct rte_mbuf *mbuf;
	uint8_t *data;
	/* Received: length of the frame. Allocated: room in the buffer. To send: bytes to send. */
	uint32_t len;
	/*
	 * Received: SPRAT_CHECKED.
	 * To send: 0, or SPRAT_CHECKSUM | l2_len << 8 | l3_len << 16 [| SPRAT_IPV6].
	 */
	uint32_t flags;
};

#define SPRAT_CHECKED 1u
#define SPRAT_CHECKSUM 2u
#define SPRAT_IPV6 4u

/* The description of a device. */
struct sprat_device {
	char driver[32];
	uint8_t mac[6];
	/* Largest IP packet in bytes; 0 if the device does not report it. */
	uint16_t max_mtu;
	/* Bits of SPRAT_CAN_*. */
	uint32_t can;
	/* NUMA node to which the device is attached; -1 if it does not report one. */
	int32_t numa;
	/* Largest number of queues in each direction. */
	uint16_t max_queues;
};

#define SPRAT_CAN_CHECK_RECEIVED 1u
#define SPRAT_CAN_CHECK_SENT 2u
/* If used, the device receives only frames of chosen VLANs. */
#define SPRAT_CAN_FILTER_VLAN 4u
/* If used, frames cause interrupts. Never in `can`: sprat_dpdk_bell shows whether it works. */
#define SPRAT_CAN_RING 8u

/* The settings of a device. */
struct sprat_setup {
	/* For each queue the pool of its frames. */
	struct rte_mempool *const *pools;
	/* Hardware address to use; NULL keeps the device's own. */
	const uint8_t *mac;
	/* Largest IP packet in bytes; 0 keeps the device's setting. */
	uint16_t mtu;
	uint16_t descriptors;
	uint16_t queues;
	/* Bits of SPRAT_CAN_*: the features to use. */
	uint32_t use;
};

/* The counters of a device. */
struct sprat_counters {
	uint64_t missed;
	uint64_t errors_in;
	uint64_t errors_out;
	uint64_t no_buffer;
};

/* Call once per process, on a thread that may end. */
int sprat_dpdk_init(int argc, char **argv);
/* Returns the last lines that DPDK has logged, ended by a 0, and clears them. */
void sprat_dpdk_take_log(char *text, uint32_t size);
/* Gives the calling thread caches of its own. Call sprat_dpdk_thread_leave on the same thread. */
int sprat_dpdk_thread_enter(void);
void sprat_dpdk_thread_leave(void);

/* numa: the NUMA node whose memory to use; -1 for any. */
int sprat_dpdk_pool(const char *name, uint32_t frames, uint32_t room, int32_t numa, struct rte_mempool **pool);
/* Call only when all frames have returned. */
void sprat_dpdk_pool_free(struct rte_mempool *pool);
/* Returns the number of frames that are not in the pool. */
uint32_t sprat_dpdk_pool_used(struct rte_mempool *pool);

/* Makes DPDK probe a device, such as "0000:01:00.1" or "net_memif0,role=server". */
int sprat_dpdk_attach(const char *arguments, const char *name, uint16_t *port);
/* Finds the first device whose port number is `from` or higher. */
int sprat_dpdk_next(uint16_t from, uint16_t *port);
int sprat_dpdk_describe(uint16_t port, struct sprat_device *device);
int sprat_dpdk_setup(uint16_t port, const struct sprat_setup *setup);
int sprat_dpdk_start(uint16_t port);
/* Make a started device receive frames to a group's hardware address, or of a VLAN. */
int sprat_dpdk_hear_group(uint16_t port, const uint8_t *group);
int sprat_dpdk_hear_vlan(uint16_t port, uint16_t vlan);
/*
 * Makes a started device receive frames to all addresses, until it is closed. A device without this
 * feature receives them anyway.
 */
int sprat_dpdk_hear_all(uint16_t port);
/* Stops, closes and removes a device. */
void sprat_dpdk_close(uint16_t port);
/* Returns 1 if the link is up, and 0 if it is down. */
int sprat_dpdk_link(uint16_t port);
int sprat_dpdk_counters(uint16_t port, struct sprat_counters *counters);
/*
 * Returns the descriptor that polls readable when a frame arrives after the bell was armed;
 * negative if there is none. It belongs to the device, and is valid until the device is stopped.
 */
int sprat_dpdk_bell(uint16_t port, uint16_t queue);
/* With armed 1, arms the bell for the next frame, if the device can. With 0, disarms the bell. */
int sprat_dpdk_arm(uint16_t port, uint16_t queue, int armed);
/* Makes the device steer datagrams for a UDP port to a queue. */
int sprat_dpdk_steer(uint16_t port, uint16_t queue, uint16_t udp_port, int ipv6);

/*
 * Fills frames with up to count that have arrived, at most 64. Returns how many. The caller owns
 * them.
 */
uint16_t sprat_dpdk_receive(uint16_t port, uint16_t queue, struct sprat_frame *frames, uint16_t count);
/* Takes count frames from the pool, at most 64, or none. Returns how many. */
uint16_t sprat_dpdk_alloc(struct rte_mempool *pool, struct sprat_frame *frames, uint16_t count);
/* Sends frames. Returns how many the device took, from the first on. The caller keeps the others. */
uint16_t sprat_dpdk_transmit(uint16_t port, uint16_t queue, const struct sprat_frame *frames, uint16_t count);
/*
 * Sends one frame that begins with head and ends with len bytes at data, which the caller keeps.
 * Only for devices that copy a frame before the call returns. Returns 1 if the frame was sent; the
 * device then owns head. Otherwise returns 0, and the caller keeps head.
 */
uint16_t sprat_dpdk_transmit_with(uint16_t port, uint16_t queue, struct rte_mempool *pool, const struct sprat_frame *head,
				  void *data, uint16_t len);
void sprat_dpdk_free(const struct sprat_frame *frames, uint16_t count);

/* Returns 1 if the kernel's BPF program with the id `number` is called `name`, otherwise 0. */
int sprat_program_is(uint32_t number, const char *name);

#endif
