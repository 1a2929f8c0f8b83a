#!/bin/busybox sh
# First process of the guest: mounts, modules, addresses, one RDMA device (or one for each host), then the commands.
# Here bash would be wrong (busybox sets itself up), but the commands run under bash: busybox's shell prefers its own `ip`.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for folder in /dev/shm /tmp /run; do
  mkdir -p "$folder"
  mount -t tmpfs tmpfs "$folder"
done
export HOME=/guest PATH=/tools:/bin LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu:/lib/x86_64-linux-gnu
while read -r module; do insmod "/modules/$module" 2>/dev/null; done </modules/order
ulimit -l unlimited
hosts=$(cat /guest/hosts)
/tools/ip link set lo up

# A pair of interfaces with room for whole pages: the largest path MTU (4096) needs more than 4096 bytes a frame.
pair() {
  /tools/ip link add "$1" type veth peer name "$2"
  /tools/ip link set "$1" mtu 9000
  /tools/ip link set "$2" mtu 9000
}
# The device's state is told by the kernel a moment after its interface came up.
wait_active() {
  tries=0
  while [ $tries -lt 100 ] && ! "$@" /tools/rdma link | grep -q 'state ACTIVE'; do
    tries=$((tries + 1))
    sleep 0.1
  done
}

if [ "$hosts" -eq 0 ]; then
  pair near far
  /tools/ip link set far up
  /tools/ip link set near up
  /tools/ip addr add 10.0.0.1/24 dev near
  /tools/rdma link add rxe0 type rxe netdev near
  wait_active
else
  # Each host is a network namespace with a device of its own on one bridge.
  /tools/rdma system set netns exclusive
  /tools/ip link add bridge0 type bridge
  /tools/ip link set bridge0 mtu 9000
  /tools/ip link set bridge0 up
  for i in $(seq "$hosts"); do
    inside="/tools/ip netns exec host$i"
    /tools/ip netns add "host$i"
    pair "near$i" "far$i"
    /tools/ip link set "near$i" netns "host$i"
    /tools/ip link set "far$i" master bridge0
    /tools/ip link set "far$i" up
    $inside /tools/ip link set lo up
    $inside /tools/ip addr add "10.0.0.$i/24" dev "near$i"
    $inside /tools/ip link set "near$i" up
    $inside /tools/rdma link add "rxe$i" type rxe netdev "near$i"
    /tools/rdma dev set "rxe$i" netns "host$i"
    wait_active $inside
  done
fi
mount -t ext4 /dev/vda /data
cd /guest
echo "windlass-guest: ready"
/tools/bash /guest/commands
status=$?
sync
echo "windlass-guest: status $status"
poweroff -f
