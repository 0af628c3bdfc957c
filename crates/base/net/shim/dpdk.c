#define _GNU_SOURCE
#include "dpdk.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include <rte_alarm.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ether.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

/* The largest number of frames in one call of DPDK. To send more frames takes several calls. */
#define BURST 64

/* Number of frames that each thread keeps in its own cache. */
#define POOL_CACHE 256

/* ------------------------------------------------------------------ the environment */

/* DPDK logs line by line, from any thread. The latest lines are kept to explain errors. */
static struct {
	pthread_mutex_t lock;
	char text[2048];
	size_t len;
} journal = {.lock = PTHREAD_MUTEX_INITIALIZER};

static ssize_t journal_write(void *cookie, const char *text, size_t len)
{
	(void)cookie;
	/* After a critical message DPDK ends the process, so print the message at once. */
	if (rte_log_cur_msg_loglevel() <= (int)RTE_LOG_CRIT)
		fprintf(stderr, "sprat: DPDK: %.*s", (int)len, text);
	size_t keep = len < sizeof(journal.text) ? len : sizeof(journal.text);
	pthread_mutex_lock(&journal.lock);
	if (journal.len + keep > sizeof(journal.text)) {
		size_t drop = journal.len + keep - sizeof(journal.text);
		memmove(journal.text, journal.text + drop, journal.len - drop);
		journal.len -= drop;
	}
	memcpy(journal.text + journal.len, text + (len - keep), keep);
	journal.len += keep;
	pthread_mutex_unlock(&journal.lock);
	return (ssize_t)len;
}

void sprat_dpdk_take_log(char *text, uint32_t size)
{
	pthread_mutex_lock(&journal.lock);
	size_t keep = journal.len < size - 1 ? journal.len : size - 1;
	memcpy(text, journal.text + (journal.len - keep), keep);
	text[keep] = 0;
	journal.len = 0;
	pthread_mutex_unlock(&journal.lock);
}

int sprat_dpdk_init(int argc, char **argv)
{
	cookie_io_functions_t io = {.write = journal_write};
	FILE *stream = fopencookie(NULL, "w", io);
	if (!stream)
		return -errno;
	setvbuf(stream, NULL, _IOLBF, 0);
	rte_openlog_stream(stream);
	return rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
}

int sprat_dpdk_thread_enter(void)
{
	return rte_thread_register() < 0 ? -rte_errno : 0;
}

void sprat_dpdk_thread_leave(void)
{
	rte_thread_unregister();
}

int sprat_dpdk_pool(const char *name, uint32_t frames, uint32_t room, int32_t numa, struct rte_mempool **pool)
{
	*pool = rte_pktmbuf_pool_create(name, frames, POOL_CACHE, 0, (uint16_t)(room + RTE_PKTMBUF_HEADROOM), numa);
	return *pool ? 0 : -rte_errno;
}

void sprat_dpdk_pool_free(struct rte_mempool *pool)
{
	rte_mempool_free(pool);
}

uint32_t sprat_dpdk_pool_used(struct rte_mempool *pool)
{
	return rte_mempool_in_use_count(pool);
}

/* ------------------------------------------------------------------ devices */

int sprat_dpdk_attach(const char *arguments, const char *name, uint16_t *port)
{
	int result = rte_dev_probe(arguments);
	if (result < 0 && result != -EEXIST)
		return result;
	if (rte_eth_dev_get_port_by_name(name, port) == 0)
		return 0;
	/* Some drivers do not name their ports after the device. */
	struct rte_dev_iterator iterator;
	uint16_t found;
	RTE_ETH_FOREACH_MATCHING_DEV(found, name, &iterator) {
		rte_eth_iterator_cleanup(&iterator);
		*port = found;
		return 0;
	}
	return -ENODEV;
}

int sprat_dpdk_next(uint16_t from, uint16_t *port)
{
	*port = (uint16_t)rte_eth_find_next(from);
	return *port < RTE_MAX_ETHPORTS ? 0 : -ENODEV;
}

int sprat_dpdk_describe(uint16_t port, struct sprat_device *device)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	int result = rte_eth_dev_info_get(port, &info);
	if (!result)
		result = rte_eth_macaddr_get(port, &mac);
	if (result)
		return result;
	memset(device, 0, sizeof(*device));
	snprintf(device->driver, sizeof(device->driver), "%s", info.driver_name);
	memcpy(device->mac, mac.addr_bytes, sizeof(device->mac));
	device->max_mtu = info.max_mtu;
	device->max_queues = RTE_MIN(info.max_rx_queues, info.max_tx_queues);
	device->numa = rte_eth_dev_socket_id(port);
	const uint64_t in = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
	if ((info.rx_offload_capa & in) == in)
		device->can |= SPRAT_CAN_CHECK_RECEIVED;
	if (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_UDP_CKSUM)
		device->can |= SPRAT_CAN_CHECK_SENT;
	if (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_VLAN_FILTER)
		device->can |= SPRAT_CAN_FILTER_VLAN;
	return 0;
}

int sprat_dpdk_setup(uint16_t port, const struct sprat_setup *setup)
{
	struct rte_eth_conf conf;
	struct rte_eth_dev_info info;
	memset(&conf, 0, sizeof(conf));
	conf.rxmode.mtu = setup->mtu;
	if (setup->use & SPRAT_CAN_CHECK_RECEIVED)
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
	if (setup->use & SPRAT_CAN_FILTER_VLAN)
		conf.rxmode.offloads |= RTE_ETH_RX_OFFLOAD_VLAN_FILTER;
	if (setup->use & SPRAT_CAN_CHECK_SENT)
		conf.txmode.offloads |= RTE_ETH_TX_OFFLOAD_UDP_CKSUM;
	conf.intr_conf.rxq = setup->use & SPRAT_CAN_RING ? 1 : 0;
	int result = rte_eth_dev_configure(port, setup->queues, setup->queues, &conf);
	if (result && conf.intr_conf.rxq) {
		conf.intr_conf.rxq = 0;
		result = rte_eth_dev_configure(port, setup->queues, setup->queues, &conf);
	}
	if (result)
		return result;
	uint16_t in = setup->descriptors, out = setup->descriptors;
	result = rte_eth_dev_adjust_nb_rx_tx_desc(port, &in, &out);
	if (!result)
		result = rte_eth_dev_info_get(port, &info);
	if (result)
		return result;
	struct rte_eth_rxconf rx = info.default_rxconf;
	struct rte_eth_txconf tx = info.default_txconf;
	rx.offloads = conf.rxmode.offloads;
	tx.offloads = conf.txmode.offloads;
	unsigned int numa = (unsigned int)rte_eth_dev_socket_id(port);
	for (uint16_t queue = 0; !result && queue < setup->queues; queue++) {
		result = rte_eth_rx_queue_setup(port, queue, in, numa, &rx, setup->pools[queue]);
		if (!result)
			result = rte_eth_tx_queue_setup(port, queue, out, numa, &tx);
	}
	if (!result && setup->mac) {
		struct rte_ether_addr own, mac;
		memcpy(mac.addr_bytes, setup->mac, sizeof(mac.addr_bytes));
		result = rte_eth_macaddr_get(port, &own);
		if (!result && !rte_is_same_ether_addr(&own, &mac))
			result = rte_eth_dev_default_mac_addr_set(port, &mac);
	}
	return result;
}

int sprat_dpdk_start(uint16_t port)
{
	return rte_eth_dev_start(port);
}

int sprat_dpdk_hear_vlan(uint16_t port, uint16_t vlan)
{
	return rte_eth_dev_vlan_filter(port, vlan, 1);
}

int sprat_dpdk_hear_group(uint16_t port, const uint8_t *group)
{
	struct rte_ether_addr mac;
	memcpy(mac.addr_bytes, group, sizeof(mac.addr_bytes));
	if (rte_eth_dev_set_mc_addr_list(port, &mac, 1) == 0)
		return 0;
	int result = rte_eth_allmulticast_enable(port);
	/* A device that supports neither call receives all frames. */
	return result == -ENOTSUP ? 0 : result;
}

int sprat_dpdk_hear_all(uint16_t port)
{
	int result = rte_eth_promiscuous_enable(port);
	return result == -ENOTSUP ? 0 : result;
}

struct closing {
	uint16_t port;
	sem_t done;
};

static void close_here(void *argument)
{
	struct closing *closing = argument;
	rte_eth_dev_close(closing->port);
	sem_post(&closing->done);
}

/* Closes a port on DPDK's interrupt thread, where no interrupt handler runs at the same time. */
static int close_between_interrupts(uint16_t port)
{
	struct closing closing = {.port = port};
	sem_init(&closing.done, 0, 0);
	int result = rte_eal_alarm_set(1, close_here, &closing);
	if (result == 0)
		while (sem_wait(&closing.done) == -1 && errno == EINTR)
			;
	sem_destroy(&closing.done);
	return result;
}

void sprat_dpdk_close(uint16_t port)
{
	struct rte_eth_dev_info info = {0};
	struct rte_device *device = rte_eth_dev_info_get(port, &info) == 0 ? info.device : NULL;
	/* DPDK 22.11 does not remove virtio-user's handler while it runs, but frees what it uses: the
	 * next interrupt ended the process by a segmentation fault (2 of 150 commands on a busy
	 * machine). */
	int is_virtio_user = info.driver_name && strcmp(info.driver_name, "net_virtio_user") == 0;
	/* An interface of the kernel would otherwise stay promiscuous. */
	if (rte_eth_promiscuous_get(port) == 1)
		rte_eth_promiscuous_disable(port);
	rte_eth_dev_stop(port);
	if (!is_virtio_user || close_between_interrupts(port) != 0)
		rte_eth_dev_close(port);
	if (device)
		rte_dev_remove(device);
}

int sprat_dpdk_link(uint16_t port)
{
	struct rte_eth_link link;
	int result = rte_eth_link_get_nowait(port, &link);
	return result ? result : link.link_status == RTE_ETH_LINK_UP;
}

int sprat_dpdk_counters(uint16_t port, struct sprat_counters *counters)
{
	struct rte_eth_stats stats;
	int result = rte_eth_stats_get(port, &stats);
	if (result)
		return result;
	counters->missed = stats.imissed;
	counters->errors_in = stats.ierrors;
	counters->errors_out = stats.oerrors;
	counters->no_buffer = stats.rx_nombuf;
	return 0;
}

int sprat_dpdk_bell(uint16_t port, uint16_t queue)
{
	return rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue);
}

int sprat_dpdk_arm(uint16_t port, uint16_t queue, int armed)
{
	return armed ? rte_eth_dev_rx_intr_enable(port, queue) : rte_eth_dev_rx_intr_disable(port, queue);
}

int sprat_dpdk_steer(uint16_t port, uint16_t queue, uint16_t udp_port, int ipv6)
{
	const struct rte_flow_attr attributes = {.ingress = 1};
	const struct rte_flow_item_ipv4 carries_udp = {.hdr.next_proto_id = IPPROTO_UDP};
	const struct rte_flow_item_ipv4 carries = {.hdr.next_proto_id = UINT8_MAX};
	const struct rte_flow_item_udp wanted = {.hdr.dst_port = rte_cpu_to_be_16(udp_port)};
	const struct rte_flow_item_udp mask = {.hdr.dst_port = UINT16_MAX};
	struct rte_flow_item pattern[] = {
		{.type = RTE_FLOW_ITEM_TYPE_ETH},
		{.type = ipv6 ? RTE_FLOW_ITEM_TYPE_IPV6 : RTE_FLOW_ITEM_TYPE_IPV4},
		{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &wanted, .mask = &mask},
		{.type = RTE_FLOW_ITEM_TYPE_END},
	};
	const struct rte_flow_action_queue to = {.index = queue};
	const struct rte_flow_action actions[] = {
		{.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to},
		{.type = RTE_FLOW_ACTION_TYPE_END},
	};
	struct rte_flow_error error;
	if (rte_flow_create(port, &attributes, pattern, actions, &error))
		return 0;
	if (ipv6)
		return -rte_errno;
	/* Some drivers need the next protocol in the IPv4 header too. */
	pattern[1].spec = &carries_udp;
	pattern[1].mask = &carries;
	return rte_flow_create(port, &attributes, pattern, actions, &error) ? 0 : -rte_errno;
}

/* ------------------------------------------------------------------ frames */

uint16_t sprat_dpdk_receive(uint16_t port, uint16_t queue, struct sprat_frame *frames, uint16_t count)
{
	struct rte_mbuf *mbufs[BURST];
	uint16_t got = rte_eth_rx_burst(port, queue, mbufs, count < BURST ? count : BURST), kept = 0;
	for (uint16_t i = 0; i < got; i++) {
		struct rte_mbuf *mbuf = mbufs[i];
		/* A buffer has room for the longest frame, so a frame in several segments is too long. */
		if (unlikely(mbuf->nb_segs != 1)) {
			rte_pktmbuf_free(mbuf);
			continue;
		}
		/* The card's owner may strip a virtual function's VLAN tags. The host needs them. */
		if (unlikely(mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) && rte_vlan_insert(&mbuf)) {
			rte_pktmbuf_free(mbuf);
			continue;
		}
		const uint64_t good = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
		frames[kept].mbuf = mbuf;
		frames[kept].data = rte_pktmbuf_mtod(mbuf, uint8_t *);
		frames[kept].len = mbuf->data_len;
		frames[kept].flags = (mbuf->ol_flags & good) == good ? SPRAT_CHECKED : 0;
		rte_prefetch0(frames[kept].data);
		kept++;
	}
	return kept;
}

uint16_t sprat_dpdk_alloc(struct rte_mempool *pool, struct sprat_frame *frames, uint16_t count)
{
	struct rte_mbuf *mbufs[BURST];
	if (count > BURST)
		count = BURST;
	if (rte_pktmbuf_alloc_bulk(pool, mbufs, count))
		return 0;
	for (uint16_t i = 0; i < count; i++) {
		frames[i].mbuf = mbufs[i];
		frames[i].data = rte_pktmbuf_mtod(mbufs[i], uint8_t *);
		frames[i].len = rte_pktmbuf_tailroom(mbufs[i]);
		frames[i].flags = 0;
	}
	return count;
}

uint16_t sprat_dpdk_transmit(uint16_t port, uint16_t queue, const struct sprat_frame *frames, uint16_t count)
{
	struct rte_mbuf *mbufs[BURST];
	uint16_t sent = 0;
	while (sent < count) {
		uint16_t part = count - sent < BURST ? count - sent : BURST;
		for (uint16_t i = 0; i < part; i++) {
			const struct sprat_frame *frame = &frames[sent + i];
			struct rte_mbuf *mbuf = frame->mbuf;
			mbuf->data_len = (uint16_t)frame->len;
			mbuf->pkt_len = frame->len;
			if (frame->flags & SPRAT_CHECKSUM) {
				mbuf->l2_len = frame->flags >> 8 & 0x7f;
				mbuf->l3_len = frame->flags >> 16 & 0x1ff;
				mbuf->ol_flags = RTE_MBUF_F_TX_UDP_CKSUM |
					(frame->flags & SPRAT_IPV6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4);
			}
			mbufs[i] = mbuf;
		}
		uint16_t took = rte_eth_tx_burst(port, queue, mbufs, part);
		sent += took;
		if (took < part)
			break;
	}
	return sent;
}

static void keep(void *data, void *argument)
{
	(void)data;
	(void)argument;
}

uint16_t sprat_dpdk_transmit_with(uint16_t port, uint16_t queue, struct rte_mempool *pool, const struct sprat_frame *head,
				  void *data, uint16_t len)
{
	struct rte_mbuf_ext_shared_info shared = {.free_cb = keep};
	struct rte_mbuf *first = head->mbuf, *tail = rte_pktmbuf_alloc(pool);
	if (!tail)
		return 0;
	rte_mbuf_ext_refcnt_set(&shared, 1);
	rte_pktmbuf_attach_extbuf(tail, data, RTE_BAD_IOVA, len, &shared);
	tail->data_off = 0;
	tail->data_len = len;
	tail->pkt_len = len;
	first->data_len = (uint16_t)head->len;
	first->pkt_len = head->len + len;
	first->next = tail;
	first->nb_segs = 2;
	uint16_t took = rte_eth_tx_burst(port, queue, &first, 1);
	if (!took) {
		first->next = NULL;
		first->nb_segs = 1;
		rte_pktmbuf_free(tail);
	}
	/* If the device still refers to the data, it would read memory that is no longer valid. */
	if (rte_mbuf_ext_refcnt_read(&shared))
		rte_panic("port %u keeps frames it was said to copy\n", port);
	return took;
}

void sprat_dpdk_free(const struct sprat_frame *frames, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++)
		rte_pktmbuf_free(frames[i].mbuf);
}
