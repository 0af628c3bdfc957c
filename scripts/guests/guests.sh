# shellcheck shell=bash
# Runs two guests, a and b, with two networks between them. The networks exist only in QEMU, whose
# processes exchange frames through sockets in a temporary folder. Needs scripts/common.sh.

RUN=$PWD/target/guests/run
SOCKETS=
# Limit on the life of a guest, seconds. It holds even if this script is killed.
LIFETIME=${LIFETIME:-2400}
# Limit on the time from a guest's start to the end of its first job, seconds, on a busy machine.
BOOT_PATIENCE=180
declare -A PROCESS=() JOBS=()
# The file with the output of the latest job.
OUTPUT=

control_address() { case $1 in a) echo 10.77.0.1 ;; b) echo 10.77.0.2 ;; esac; }
data_address() { case $1 in a) echo 10.78.0.1 ;; b) echo 10.78.0.2 ;; esac; }
data_address6() { case $1 in a) echo fd00:78::1 ;; b) echo fd00:78::2 ;; esac; }

# start_guests SPRAT: starts both guests with that binary, and waits until they are up.
start_guests() {
  local guest
  exec {LOCK}>target/guests/lock
  flock -n "$LOCK" || fail "the guests of another run are up: wait until that run ends"
  rm -rf "$RUN"
  SOCKETS=$(mktemp -d)
  trap end_guests EXIT
  for guest in a b; do
    mkdir -p "$RUN/$guest/jobs"
    cp "$1" "$RUN/$guest/sprat"
  done
  start_guest a b 0a
  start_guest b a 0b
  for guest in a b; do
    in_guest "$guest" "starting" "$BOOT_PATIENCE" <<<"ping -c 1 -W 10 $(control_address "$guest")"
  done
  say "guests: both up after $SECONDS s"
}

# start_guest NAME PEER BYTE: BYTE is the last byte of its cards' hardware addresses.
start_guest() {
  local name=$1 peer=$2 byte=$3
  JOBS[$name]=0
  wire() { printf 'dgram,id=%s,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s' "$1" "$SOCKETS/$name-$1" "$SOCKETS/$peer-$1"; }
  # The guest uses the HPET, because an emulated processor's TSC is no reliable clock. vfio-pci
  # needs the IOMMU.
  timeout -k 5 "$LIFETIME" qemu-system-x86_64 -name "$name" -nodefaults -no-reboot -display none \
    -accel tcg,thread=multi,tb-size=256 -cpu max -smp 1 -m 1536 -M q35,kernel-irqchip=split,usb=off,smbus=off,sata=off \
    -kernel target/guests/vmlinuz -initrd target/guests/initrd -serial "file:$RUN/$name/console.log" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests random.trust_cpu=1 no_timer_check clocksource=hpet \
tsc=unstable intel_iommu=on iommu=pt hugepages=160 control=$(control_address "$name")" \
    -device intel-iommu,intremap=on,caching-mode=on \
    -fsdev "local,id=share,path=$RUN/$name,security_model=none" -device virtio-9p-pci,fsdev=share,mount_tag=share,addr=2 \
    -netdev "$(wire control)" -device "virtio-net-pci,netdev=control,mac=52:54:00:77:00:$byte,romfile=,addr=3" \
    -device pcie-root-port,id=root1,slot=1,addr=4 \
    -netdev "$(wire data)" -device "igb,bus=root1,netdev=data,mac=52:54:00:78:00:$byte,romfile=" \
    >"$RUN/$name/qemu.log" 2>&1 </dev/null &
  PROCESS[$name]=$!
}

# in_guest NAME WHAT LIMIT: runs the commands from standard input in a guest. If they fail, or take
# more than LIMIT seconds, prints their output and ends this script.
in_guest() {
  local name=$1 what=$2 limit=$3 job until=$((SECONDS + $3))
  JOBS[$name]=$((JOBS[$name] + 1))
  job=$RUN/$name/jobs/${JOBS[$name]}
  OUTPUT=$job.out
  cat >"$job.new"
  mv "$job.new" "$job.sh"
  until [[ -e $job.rc ]]; do
    kill -0 "${PROCESS[$name]}" 2>/dev/null || fail "guest $name, $what: QEMU has ended; see $RUN/$name/qemu.log and console.log"
    ((SECONDS < until)) || fail "guest $name, $what: not done after $limit s; $(last_words "$name" "$job")"
    sleep 0.1
  done
  [[ $(cat "$job.rc") == 0 ]] || fail "guest $name, $what: status $(cat "$job.rc"); $(last_words "$name" "$job")"
}

last_words() {
  printf 'see the files in %s; the last output was:\n' "$RUN/$1"
  tail -n 20 "$2.out" 2>/dev/null || tail -n 20 "$RUN/$1/console.log" 2>/dev/null || true
}

end_guests() {
  local name
  for name in "${!PROCESS[@]}"; do
    kill "${PROCESS[$name]}" 2>/dev/null || true
  done
  wait
  rm -rf "$SOCKETS"
}
