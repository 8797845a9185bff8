# Sourced after common.sh by the scripts that need containers: a Docker engine and the images.
# shellcheck shell=bash
engine=
engine_root=${KV_DOCKER_ROOT:-$work/docker}
tag=acceptance
mkdir -p "$work/bin"
PATH=$work/bin:$PATH
# Otherwise Compose waits only 60 s for the engine.
export DOCKER_BUILDKIT=1 COMPOSE_HTTP_TIMEOUT=300

# A client without BuildKit, which on some machines is first on PATH, cannot build.
choose_client() {
  local client
  for client in $(type -aP docker); do
    if "$client" build --help >/dev/null 2>&1; then
      ln -sf "$client" "$work/bin/docker"
      return 0
    fi
  done
  skip "no docker on PATH that builds with BuildKit"
}

# start_engine: uses the running engine, or starts one with its data under $engine_root, which scripts that run one after the other may share through
# KV_DOCKER_ROOT. If no engine can be started, or it cannot run a container, the script is skipped.
start_engine() {
  choose_client
  if ! docker info >/dev/null 2>&1; then
    command -v dockerd >/dev/null && [[ $(id -u) == 0 ]] || skip "no Docker engine answers, and none can be started here"
    mkdir -p "$engine_root"
    # Published ports go through the engine's own proxy, so that this machine's packet filter stays unchanged. The engine runs in its own session: if
    # this script is killed with everything that it started, the engine must still be able to stop the containers.
    setsid dockerd --iptables=false --data-root "$engine_root/data" --exec-root "$work/x" --pidfile "$work/docker.pid" -H "unix://$work/docker.sock" \
      >"$work/dockerd.log" 2>&1 &
    engine=$!
    export DOCKER_HOST=unix://$work/docker.sock
    comes_true 120 engine_answers || skip "dockerd does not answer within two minutes: $(tail -n 1 "$work/dockerd.log")"
  fi
  engine_runs >"$work/probe.out" 2>&1 || skip "the Docker engine runs no container in a network of its own here: $(tail -n 1 "$work/probe.out")"
}

engine_answers() {
  kill -0 "$engine" 2>/dev/null || skip "dockerd does not run here: $(tail -n 1 "$work/dockerd.log")"
  docker info >/dev/null 2>&1
}

# engine_runs: succeeds if the engine can run a container of busybox alone.
engine_runs() {
  local code=0
  mkdir -p "$work/probe/bin" && cp "$(command -v busybox)" "$work/probe/bin/busybox" &&
    tar -C "$work/probe" -c . | docker import - kvcluster-base/probe:local || return 1
  docker network create kvcluster-probe || return 1
  docker run --rm --read-only --cap-drop ALL --network kvcluster-probe kvcluster-base/probe:local /bin/busybox true || code=$?
  docker network rm kvcluster-probe
  return $code
}

stop_engine() {
  if [[ -n $engine ]]; then
    stop "$engine" 30 || echo "$name: dockerd had to be killed"
    engine=
    # An engine that did not start, or was killed, leaves its data mounted.
    awk -v data="$engine_root/data" -v run="$work/x" 'index($2, data) == 1 || index($2, run) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount -l
  fi
}

# base_images: builds the base images if none can be pulled, and exports their names as SDK_IMAGE, RUNTIME_IMAGE, ETCD_IMAGE, PROMETHEUS_IMAGE. If the
# environment sets the first two already, it sets all four. Images in a shared $engine_root are reused, because new ones would make everything on top
# of them build again.
base_images() {
  local line names=$work/base-images.txt
  if [[ -n ${SDK_IMAGE:-} && -n ${RUNTIME_IMAGE:-} ]]; then
    return 0
  fi
  [[ -z $engine ]] || names=$engine_root/base-images.txt
  if [[ ! -e $names ]]; then
    "$root/deploy/base-images" "$work" >"$names.new" 2>"$work/base-images.out" || fail "deploy/base-images: $(tail -n 3 "$work/base-images.out")"
    mv "$names.new" "$names"
  fi
  while read -r line; do
    export "${line?}"
  done <"$names"
}

# image NAME: builds kvcluster/NAME and checks its size and user. NuGet's sources are those of this machine.
image() {
  local arguments=(--network host --build-arg "SDK_IMAGE=$SDK_IMAGE" \
    --build-arg "RUNTIME_IMAGE=$RUNTIME_IMAGE") config=$HOME/.nuget/NuGet/NuGet.Config started size
  [[ ! -e $config ]] || arguments+=(--secret "id=nuget-config,src=$config")
  started=$(now_ms)
  docker build "${arguments[@]}" --progress plain -f "$root/deploy/$1.Dockerfile" -t "kvcluster/$1:$tag" "$root" >"$work/build-$1.out" 2>&1 || {
    ! grep -qE 'error NU1(100|101|301)' "$work/build-$1.out" ||
      skip "no package feed reaches into a container here: $(grep -m 1 -oE 'error NU1.*' "$work/build-$1.out")"
    fail "docker build of $1"
  }
  size=$(docker image inspect -f '{{.Size}}' "kvcluster/$1:$tag")
  say "image $1: $((size / 1000000)) MB, built in $((($(now_ms) - started) / 1000)) s, user $(docker image inspect -f '{{.Config.User}}' "kvcluster/$1:$tag")"
  ((size < 150000000)) || fail "the image of $1 has $size bytes"
}

images() {
  base_images
  image node
  image router
  image cli
  export NODE_IMAGE=kvcluster/node:$tag ROUTER_IMAGE=kvcluster/router:$tag CLI_IMAGE=kvcluster/cli:$tag
}
