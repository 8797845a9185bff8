# Sourced by docker, after engine.sh: the units of deploy/systemd under a real systemd, with the commands of deploy/UPGRADING.md as they stand there.
# shellcheck shell=bash
machine=kvacceptance-systemd

# commands BLOCK: the commands of the first, second or third block of the part on plain processes.
commands() {
  awk -v block="$1" '/^###? / { inside = /^### Plain processes$/ } !inside { next } /^```/ { blocks += !open; open = !open; next } open && blocks == block' \
    "$root/deploy/UPGRADING.md"
}

# in_machine COMMANDS: executes them in the machine, beside the folder deploy of the sources.
in_machine() { timeout 1500 docker exec -w /source "$machine" bash -euc "PATH=/opt/kv:\$PATH; $1"; }
done_in_machine() { in_machine "$1" >"$work/machine.out" 2>&1; }
must_in_machine() { done_in_machine "$1" || fail "in the machine with systemd: ${1//$'\n'/; }: $(tail -n 3 "$work/machine.out")"; }

# property UNIT NAME
property() { in_machine "systemctl show --property $2 --value $1"; }

# What systemd needs of a privileged container. One that is privileged in all is not made where the machine lacks a capability itself.
privileges=(--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined)
for capability in SYS_ADMIN SYS_BOOT SYS_NICE SYS_PTRACE NET_ADMIN DAC_READ_SEARCH; do
  privileges+=(--cap-add "$capability")
done

# app_of IMAGE FOLDER: the program of an image, which the Dockerfile publishes as the document does.
app_of() {
  local container
  container=$(docker create "$1")
  docker cp "$container:/app" "$2" >/dev/null
  docker rm "$container" >/dev/null
}

# boot: starts the machine, a container. Its systemd and all of its programs are those of this machine, read-only. None of the units of /usr is wanted there,
# except the journal: in a privileged container they would set devices and limits of this machine's kernel. systemd expects /sys and /proc/sys of a container to
# be read-only, and then sets nothing there either.
boot() {
  local tree=$work/systemd folder link covers=()
  mkdir -p "$tree"/{etc/systemd/system/sysinit.target.wants,home,root,usr,var/{lib,log,tmp},tmp,run,proc,sys,dev,opt,source} \
    "$work"/{nothing,given,releases/0.1.0}
  chmod 1777 "$tree"/{,var/}tmp
  for link in bin sbin lib lib64; do
    [[ ! -e /$link ]] || ln -s "usr/$link" "$tree/$link"
  done
  printf 'root:x:0:0::%s:/bin/bash\n' /root >"$tree/etc/passwd"
  printf 'root:*:1::::::\n' >"$tree/etc/shadow"
  printf 'root:x:0:\n' >"$tree/etc/group"
  printf 'root:*::\n' >"$tree/etc/gshadow"
  printf 'passwd: files\ngroup: files\nhosts: files\n' >"$tree/etc/nsswitch.conf"
  printf '[Journal]\nReadKMsg=no\n' >"$tree/etc/systemd/journald.conf"
  # Without an id this would be the first boot, which enables all that is installed.
  tr -d - </proc/sys/kernel/random/uuid >"$tree/etc/machine-id"
  [[ ! -e /etc/login.defs ]] || cp /etc/login.defs "$tree/etc/"
  ln -s /usr/lib/systemd/system/multi-user.target "$tree/etc/systemd/system/default.target"
  ln -s /usr/lib/systemd/system/systemd-journald.service "$tree/etc/systemd/system/sysinit.target.wants/"
  tar -C "$tree" -c . | docker import - kvcluster-base/systemd:local >/dev/null
  for folder in /usr/lib/systemd/system/*.wants /usr/lib/systemd/system-generators; do
    [[ ! -d $folder ]] || covers+=(-v "$work/nothing:$folder:ro")
  done
  app_of "$NODE_IMAGE" "$work/releases/0.1.0/node"
  app_of "$ROUTER_IMAGE" "$work/releases/0.1.0/router"
  app_of "$CLI_IMAGE" "$work/kv"
  docker run -d -t --name "$machine" "${privileges[@]}" --cgroupns private --network none -e container=docker --tmpfs /run --tmpfs /tmp \
    -v /usr:/usr:ro "${covers[@]}" -v "$root/deploy:/source/deploy:ro" -v "$work/releases:/opt/kvcluster" -v "$work/kv:/opt/kv:ro" \
    -v "$work/given:$work/given:ro" -v /var/lib/kvcluster kvcluster-base/systemd:local \
    /bin/bash -euc \
    'for tree in /sys/fs/cgroup /sys/fs/cgroup/*; do mount -o remount,bind,rw "$tree" || true; done
    mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys; mount -o remount,bind,ro /sys; exec /usr/lib/systemd/systemd --log-target=console' \
    >"$work/machine.out" 2>&1
}

booted() { in_machine 'systemctl is-system-running || true' 2>/dev/null | grep -qE '^(running|degraded)'; }

stop_machine() { docker rm --force --volumes "$machine" >"$work/machine-rm.out" 2>&1 || true; }

# restarted NODE PID: succeeds if the node runs as another process than this, and is ready.
restarted() { [[ $(property "kv-node@$1" MainPID) != "$2" ]] && done_in_machine "/opt/kvcluster/node/kv-node health --config /etc/kvcluster/node-$1.yaml"; }

failed() { [[ $(property "$1" ActiveState) == failed ]]; }

# caught_up NODE
caught_up() { is_true "($all_led) and (.nodes[] | select(.node == $1) | [.replicas[].lag] | length > 0 and max <= 1000)"; }

# settings: the machine's addresses in the files that were installed, and two more nodes.
settings() {
  local node
  must_in_machine 'cd /etc/kvcluster
    sed -i -e "s|10\.0\.0\.1:|127.0.0.1:|" -e "s|^coordinator:.*|coordinator: [etcd=http://127.0.0.1:7409]|" -e "\$a memory-budget-mib: 256" node-1.yaml
    sed -i -e "s|^nodes:.*|nodes: [http://127.0.0.1:7401, http://127.0.0.1:7402, http://127.0.0.1:7403]|" -e "s|10\.0\.0\.1:|127.0.0.1:|" router.yaml'
  for node in 2 3; do
    must_in_machine "cd /etc/kvcluster
      install -m 0640 -g kvcluster node-1.yaml node-$node.yaml
      sed -i -e 's|^node: 1|node: $node|' -e 's|node-1|node-$node|' -e 's|:7401|:740$node|' -e 's|:7480|:748$node|' node-$node.yaml"
  done
}

# upgrade_node NODE: by the document's commands. A drain is refused until the node before has caught up.
upgrade_node() {
  local lines pid
  lines=$(commands 2 | sed -e "s/drain N /drain $1 /" -e "s/@N$/@$1/" -e "s/node-N\.yaml/node-$1.yaml/" -e "s|10\.0\.0\.2:7401|127.0.0.1:740$(($1 % 3 + 1))|")
  wait_until 120 "node $1 transfers its leaderships" done_in_machine "$(head -n 1 <<<"$lines")"
  must_in_machine "$(tail -n +2 <<<"$lines")"
  pid=$(property "kv-node@$1" MainPID)
  [[ $(in_machine "readlink /proc/$pid/exe") == /opt/kvcluster/0.2.0/node/kv-node ]] ||
    fail "node $1 was not upgraded: it runs $(in_machine "readlink /proc/$pid/exe")"
  wait_until 120 "node $1 has caught up" caught_up "$1"
}

# units_under_systemd: installs three nodes and a router, kills one, stops one, gives one a wrong setting, and upgrades all of them under load.
units_under_systemd() {
  local node pid restarts load
  if [[ ! -x /usr/lib/systemd/systemd || ! -L /bin || ! -L /lib ]]; then
    say "SKIPPED the units of systemd: systemd is not installed, or its programs are not under /usr alone"
    return
  fi
  boot || fail "the machine with systemd does not start: $(tail -n 1 "$work/machine.out")"
  if ! comes_true 60 booted; then
    say "SKIPPED the units of systemd: it does not come up in a container here: $(docker logs --tail 3 "$machine" 2>&1 | tr -d '\r' | tr '\n' ' ')"
    return
  fi
  kv=$work/bin/kv-in-machine
  printf '#!/bin/sh\nexec docker exec -i %s /opt/kv/kv --endpoint http://127.0.0.1:7400 "$@"\n' "$machine" >"$kv"
  chmod +x "$kv"

  [[ $(commands 1) == *"systemctl enable --now kv-node@1"* && $(commands 2) == *"drain N "* && $(commands 3) == *"restart kv-router"* ]] ||
    fail "deploy/UPGRADING.md has other blocks than expected"
  must_in_machine "$(commands 1 | sed -e '/^dotnet publish/d' -e '/^systemctl/,$d')"
  settings
  # In the place of etcd.
  must_in_machine 'systemd-run --unit coordinator --property User=kvcluster --property StateDirectory=kvcluster/coordinator \
    /opt/kvcluster/0.1.0/node/kv-node coordinator --data /var/lib/kvcluster/coordinator --listen http://127.0.0.1:7409'
  must_in_machine "$(commands 1 | sed -n '/^systemctl/,$p')"
  must_in_machine 'systemctl enable --now kv-node@2 kv-node@3'
  wait_until 180 "the cluster of systemd serves" is_true "$all_led"
  at_most 5 "$kv" put acceptance/systemd one >"$work/put.out" 2>&1 || fail "kv put: $(cat "$work/put.out")"
  gets_one() { [[ $("$kv" get acceptance/systemd) == one ]]; }
  at_most 5 gets_one || fail "a key put under systemd is not there"
  [[ -n $(in_machine 'journalctl --unit kv-node@1 --output cat --lines 1') ]] || fail "the journal has nothing of node 1"

  pid=$(property kv-node@2 MainPID)
  # A node whose coordinator does not listen yet has been started again, too.
  restarts=$(property kv-node@2 NRestarts)
  must_in_machine "kill -KILL $pid"
  wait_until 120 "systemd starts node 2 again" restarted 2 "$pid"
  # More often where the coordinator did not answer it in time.
  (($(property kv-node@2 NRestarts) > restarts)) || fail "systemd did not start node 2 again by itself"
  wait_until 120 "node 2 has caught up" caught_up 2
  must_in_machine 'systemctl stop kv-node@3'
  [[ $(property kv-node@3 Result) == success && $(property kv-node@3 ExecMainCode) == 1 && $(property kv-node@3 ExecMainStatus) == 0 ]] ||
    fail "node 3 was stopped and did not end with 0: $(property kv-node@3 Result), $(property kv-node@3 ExecMainCode), $(property kv-node@3 ExecMainStatus)"
  at_most 5 "$kv" put acceptance/systemd two >"$work/put.out" 2>&1 || fail "kv put with a node stopped: $(cat "$work/put.out")"
  must_in_machine \
    'cp -p /etc/kvcluster/node-3.yaml /etc/kvcluster/kept; echo "admin-hosts: a/b" >>/etc/kvcluster/node-3.yaml; systemctl start kv-node@3 || true'
  wait_until 60 "node 3 is not started again and again with a wrong setting" failed kv-node@3
  [[ $(property kv-node@3 ExecMainStatus) == 2 ]] || fail "node 3 ended with $(property kv-node@3 ExecMainStatus) because of a wrong setting"
  must_in_machine 'mv /etc/kvcluster/kept /etc/kvcluster/node-3.yaml; systemctl start kv-node@3'
  wait_until 120 "node 3 has caught up" caught_up 3
  say "units of systemd: installed, killed and started again, stopped with 0, and not started again with a wrong setting"

  # The other release is the same programs in another folder.
  cp -a "$work/releases/0.1.0" "$work/releases/0.2.0"
  rm -f "$work/enough"
  paced "systemd/" "$work/given/systemd.tsv" | "$kv" load - --give-up-after 300 --output json >"$work/load.json" 2>"$work/load.out" &
  load=$!
  for node in 1 2 3; do
    upgrade_node "$node"
  done
  touch "$work/enough"
  wait "$load" || fail "the load failed in the upgrade under systemd: $(cat "$work/load.json" "$work/load.out")"
  must_in_machine "$(commands 3)"
  [[ $(in_machine "readlink /proc/$(property kv-router MainPID)/exe") == /opt/kvcluster/0.2.0/router/kv-router ]] || fail "the router was not upgraded"
  wait_until 120 "the router serves" is_true "$all_led"
  verify "$work/given/systemd.tsv"
  level_and_equal
  say "upgrade of 3 nodes and a router under systemd, under load: $(jq -r '"\(.records) records, 0 failed"' "$work/load.json")"
}
