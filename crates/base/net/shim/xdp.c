/*
 * Looks up the name of a BPF program in the kernel. See dpdk.h.
 */
#define _GNU_SOURCE
#include <linux/bpf.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dpdk.h"

int sprat_program_is(uint32_t number, const char *name)
{
	union bpf_attr attr;
	struct bpf_prog_info info;
	memset(&attr, 0, sizeof(attr));
	attr.prog_id = number;
	int fd = (int)syscall(__NR_bpf, BPF_PROG_GET_FD_BY_ID, &attr, sizeof(attr));
	if (fd < 0)
		return 0;
	memset(&attr, 0, sizeof(attr));
	memset(&info, 0, sizeof(info));
	attr.info.bpf_fd = (uint32_t)fd;
	attr.info.info_len = sizeof(info);
	attr.info.info = (uintptr_t)&info;
	long result = syscall(__NR_bpf, BPF_OBJ_GET_INFO_BY_FD, &attr, sizeof(attr));
	close(fd);
	return result == 0 && strncmp(info.name, name, sizeof(info.name) - 1) == 0;
}
