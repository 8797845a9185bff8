# Shared by the acceptance scripts that need containers, after common.sh: a Docker engine, and the images.
# shellcheck shell=bash
engine=
engine_root=${KV_DOCKER_ROOT:-$work/docker}
tag=acceptance
mkdir -p "$work/bin"
PATH=$work/bin:$PATH
export DOCKER_BUILDKIT=1

# A client without BuildKit, as some machines have before the engine's own on PATH, cannot build.
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

# start_engine: the engine that answers, else one of our own with its data under $engine_root, which another script may share by KV_DOCKER_ROOT.
start_engine() {
  local socket=$work/docker.sock
  choose_client
  docker info >/dev/null 2>&1 && return 0
  command -v dockerd >/dev/null && [[ $(id -u) == 0 ]] || skip "no Docker engine answers, and none can be started here"
  mkdir -p "$engine_root"
  # Published ports go through the engine's own proxy, so that this machine's packet filter stays as it is.
  dockerd --iptables=false --data-root "$engine_root/data" --exec-root "$work/docker-exec" --pidfile "$work/docker.pid" -H "unix://$socket" >"$work/dockerd.log" 2>&1 &
  engine=$!
  export DOCKER_HOST=unix://$socket
  wait_until 60 "the Docker engine answers" engine_answers
}

engine_answers() {
  kill -0 "$engine" 2>/dev/null || { tail -n 5 "$work/dockerd.log"; fail "dockerd ended"; }
  docker info >/dev/null 2>&1
}

stop_engine() {
  if [[ -n $engine ]]; then
    stop "$engine" 30 || echo "$name: dockerd had to be killed"
    engine=
  fi
}

# base_images: builds them where none can be pulled, and exports their names as SDK_IMAGE, RUNTIME_IMAGE, ETCD_IMAGE, PROMETHEUS_IMAGE. Where the
# environment names the first two already, it names them all.
base_images() {
  local line
  if [[ -n ${SDK_IMAGE:-} && -n ${RUNTIME_IMAGE:-} ]]; then
    return 0
  fi
  "$root/deploy/base-images" "$work" >"$work/base-images.txt" 2>"$work/base-images.out" || fail "deploy/base-images: $(tail -n 3 "$work/base-images.out")"
  while read -r line; do
    export "${line?}"
  done <"$work/base-images.txt"
}

# image NAME: builds kvcluster/NAME and checks what the issue of running it asks of an image. NuGet's sources are this machine's own.
image() {
  local arguments=(--network host --build-arg "SDK_IMAGE=$SDK_IMAGE" --build-arg "RUNTIME_IMAGE=$RUNTIME_IMAGE") config=$HOME/.nuget/NuGet/NuGet.Config started size
  [[ ! -e $config ]] || arguments+=(--secret "id=nuget-config,src=$config")
  started=$(now_ms)
  docker build "${arguments[@]}" --progress plain -f "$root/deploy/$1.Dockerfile" -t "kvcluster/$1:$tag" "$root" >"$work/build-$1.out" 2>&1 || fail "docker build of $1"
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
