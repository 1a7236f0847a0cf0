#!/bin/sh
# Installs what a build for 64-bit ARM needs on a Debian machine: the cross compiler and the emulator as packages, and the
# libraries for arm64 unpacked into the per-user cache (cmake/toolchains/aarch64-linux-gnu.cmake names the folder). apt keeps
# lists of its own for them, so the machine's packages and architectures stay as they are. Does nothing if all of it is
# there. LibTorch for ARM is not among it: the configure step installs the wheel.
set -eu
cd "$(dirname "$0")/../.."

tools/setup.sh g++-aarch64-linux-gnu qemu-user

cache="${XDG_CACHE_HOME:-$HOME/.cache}/attentive"
folder="$cache/debian-arm64"
[ ! -d "$folder" ] || exit 0
command -v apt-get >/dev/null || { echo "setup_aarch64: there is no apt-get; unpack libcatch2-dev (version 3), libfmt-dev," \
  "nlohmann-json3-dev and libcli11-dev for arm64 into $folder" >&2; exit 1; }

# The folder gets its name only when it is complete.
partial="$folder.partial"
rm -rf "$partial"
mkdir -p "$partial/apt/lists/partial" "$partial/apt/cache/archives/partial" "$partial/packages"
: >"$partial/apt/status" # no package is installed there
apt() {
  apt-get -q -o Acquire::Retries=3 -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User= \
    -o Dir::State::Lists="$partial/apt/lists" -o Dir::State::status="$partial/apt/status" -o Dir::Cache="$partial/apt/cache" "$@"
}
apt update
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
release=
# Debian 12 has Catch2's version 2; tools/setup.sh has added its backports to apt's sources.
[ "$codename" != bookworm ] || release="-t bookworm-backports"
(
  cd "$partial/packages"
  # shellcheck disable=SC2086 # two arguments or none
  apt $release download libcatch2-dev
  apt download libfmt-dev libfmt9 nlohmann-json3-dev libcli11-dev
)
for package in "$partial"/packages/*.deb; do dpkg -x "$package" "$partial"; done
rm -rf "$partial/apt" "$partial/packages"
mv "$partial" "$folder"
echo "setup_aarch64: unpacked the libraries for arm64 into $folder"
