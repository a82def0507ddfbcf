# Fetches a newer C and C++ library from Debian, and packages that need them, into the directory $1. The other arguments are
# the names of the packages. Installs nothing on the system. apt verifies the packages with Debian's keys.
set -euo pipefail
suite=trixie
mkdir -p "$1"
cd "$1"
shift
rm -rf apt usr lib lib64
mkdir -p apt/lists/partial apt/cache/archives/partial apt/none
: > apt/status
. /etc/os-release
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $VERSION_CODENAME" 'Component: main')
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror%%$'\n'*} $suite main" > apt/sources.list
options=(
  -qq
  -o Dir::Etc::sourcelist="$PWD/apt/sources.list" -o Dir::Etc::sourceparts="$PWD/apt/none"
  -o Dir::Etc::preferencesparts="$PWD/apt/none" -o Dir::State::Lists="$PWD/apt/lists"
  -o Dir::State::status="$PWD/apt/status" -o Dir::Cache="$PWD/apt/cache"
  -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
  -o APT::Sandbox::User="$(id -un)"
)
apt-get "${options[@]}" update
(cd apt/cache/archives && apt-get "${options[@]}" download libc6 libgcc-s1 libstdc++6 "$@")
for package in apt/cache/archives/*.deb; do dpkg-deb -x "$package" .; done
rm -rf apt
