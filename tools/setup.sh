#!/bin/sh
# Installs what a build needs on a Debian machine (12 or newer, or Ubuntu): as root, or through sudo. Does nothing if all
# of it is there. LibTorch is not among it: the configure step looks for one, and installs one with pip if there is none.
# Arguments are further packages.
set -eu

packages="ca-certificates ccache clang-14 clang-format-14 cmake g++ libcli11-dev libfmt-dev libomp-14-dev libpcre2-dev
libutf8proc-dev lld-14 ninja-build nlohmann-json3-dev python3 python3-venv zlib1g-dev $*"

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
version3() { dpkg --compare-versions "$1" ge 3; }

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  for tool in cmake ninja clang++-14 python3; do
    command -v "$tool" >/dev/null || fail "there is no $tool and no apt-get; install what these Debian packages hold:" \
      $packages "catch2 (version 3)"
  done
  exit 0
fi

missing=
for package in $packages; do
  installed "$package" || missing="$missing $package"
done
need_catch2=
installed catch2 && version3 "$(dpkg-query -W -f '${Version}' catch2)" || need_catch2=yes
[ -n "$missing$need_catch2" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || fail "needs root; run: apt-get install$missing ${need_catch2:+catch2 (version 3)}"
  as_root="sudo"
fi
apt() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@"; }

say "apt-get update"
apt update
if [ -n "$missing" ]; then
  say "installing$missing"
  apt install -y --no-install-recommends $missing
fi

[ -n "$need_catch2" ] || exit 0
release=
candidate=$(apt-cache policy catch2 | sed -n 's/^  Candidate: //p')
if ! version3 "${candidate:-0}"; then
  # Debian 12 has version 2; version 3 is in its backports, on the mirror that this machine already uses.
  codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  release="$codename-backports"
  suites=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages')
  if ! echo "$suites" | grep -q " $release\$"; then
    mirror=$(echo "$suites" | sed -n "s/ $codename\$//p" | head -n 1)
    [ -n "$mirror" ] || fail "found no mirror of $codename in apt's sources; install catch2, version 3, by hand"
    say "adding the suite $release of $mirror"
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    {
      echo "Types: deb"
      echo "URIs: $mirror"
      echo "Suites: $release"
      echo "Components: main"
      [ ! -e "$keyring" ] || echo "Signed-By: $keyring"
    } | $as_root tee /etc/apt/sources.list.d/attentive-backports.sources >/dev/null
    apt update
  fi
fi
say "installing catch2${release:+ from $release}"
apt install -y --no-install-recommends ${release:+-t "$release"} catch2
