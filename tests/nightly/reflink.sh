# Sourced after common.sh by the scripts that cut the power: a pool whose files can be copied at a moment, while they are written. Needs root, loop devices
# and btrfs.
# shellcheck shell=bash
pool=$work/pool

# make_pool SIZE: mounts the pool, of at most this size. Where that cannot be done, the script is skipped.
make_pool() {
  need mkfs.ext4 mkfs.btrfs mount umount
  [[ $(id -u) == 0 ]] || skip "mounting takes root"
  [[ -e /dev/loop-control ]] || skip "there are no loop devices"
  grep -qw btrfs /proc/filesystems || skip "this kernel has no btrfs"
  mkdir "$pool"
  truncate -s "$1" "$work/pool.image"
  mkfs.btrfs -q "$work/pool.image" >"$work/mkfs.out" 2>&1 || fail "mkfs.btrfs: $(cat "$work/mkfs.out")"
  mount -o loop "$work/pool.image" "$pool" || skip "a btrfs image cannot be mounted here"
}

unmount() {
  mountpoint -q "$1" || return 0
  # A process that has just died may hold it for a moment.
  comes_true 120 umount "$1" || umount -l "$1"
}
