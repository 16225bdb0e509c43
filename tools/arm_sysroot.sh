#!/bin/bash
# Unpacks the arm64 packages that the cross build links against into build-aarch64-sysroot. apt runs with lists, cache and
# architecture of its own, so the machine's package state stays as it is. Done once: the stamp is the package list.
set -euo pipefail
cd "$(dirname "$0")/.."
sysroot=$PWD/build-aarch64-sysroot
packages="libcli11-dev nlohmann-json3-dev libspdlog-dev libfmt-dev libpcre2-dev libutf8proc-dev libedit-dev libbsd-dev
  libmd-dev libncurses-dev libgtest-dev librapidcheck-dev libcpp-httplib-dev libssl-dev zlib1g-dev libbrotli-dev
  prometheus-cpp-dev"
[ "$(cat "$sysroot/packages" 2>/dev/null)" = "$packages" ] && exit 0

rm -rf "$sysroot"
work=$sysroot/apt
mkdir -p "$work"/{lists/partial,cache/archives/partial,parts,debs}
: >"$work/status"

# The distribution's own sources only: other vendors' may not carry arm64. Entries tied to one architecture are freed.
# (Ubuntu keeps arm64 on another host than amd64: there this needs a sources file of one's own.)
found=""
for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list.d/ubuntu.sources /etc/apt/sources.list; do
  if [ -s "$file" ]; then found=$file; break; fi
done
[ -n "$found" ] || { echo "arm_sysroot: no apt sources found" >&2; exit 1; }
sources=$work/sources.${found##*.}
sed -e '/^Architectures:/d' -e 's/arch=[a-z0-9,]* *//' "$found" >"$sources"
options=(-o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Install-Recommends=0
  -o Dir::State::lists="$work/lists" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache"
  -o Dir::Etc::sourcelist="$sources" -o Dir::Etc::sourceparts="$work/parts" -o APT::Sandbox::User=root
  -o Acquire::Languages=none -o Acquire::Retries=3)
apt-get "${options[@]}" update -qq </dev/null >&2

# Their shared libraries too; not libc, libstdc++ and libgcc, which come with the cross compiler.
closure=$(apt-cache "${options[@]}" depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
  --no-replaces --no-enhances $packages | grep -E '^[a-z0-9]' |
  grep -v -E '^(libc6|libc6-dev|libc-dev-bin|linux-libc-dev|libcrypt|libgcc|gcc-|libstdc|rpcsvc|libnsl|libtirpc|cpp|binutils|perl|debconf|dpkg|python|libpython|googletest|install-info)' |
  sort -u)
(cd "$work/debs" && apt-get "${options[@]}" download -qq $closure </dev/null >&2)
for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$sysroot"; done
# Absolute links would lead into this machine's own libraries.
find "$sysroot" -type l -lname '/*' | while read -r link; do ln -sfn "$sysroot$(readlink "$link")" "$link"; done
rm -rf "$work"
printf '%s' "$packages" >"$sysroot/packages"
