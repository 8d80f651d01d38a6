#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# uninstall.sh MANIFEST: removes what an installation wrote, by CMake's list of it, and folders of this library's name that
# are empty then. DESTDIR stands before every path, as it did then.
set -euo pipefail
manifest=$1
if [ ! -f "$manifest" ]; then
    echo "uninstall: there is no $manifest: nothing was installed from here" >&2
    exit 1
fi
mapfile -t files <"$manifest"
for file in "${files[@]}"; do rm -f "${DESTDIR:-}$file"; done
for file in "${files[@]}"; do
    folder=${DESTDIR:-}$(dirname "$file")
    if [ "$(basename "$folder")" = swiglu ] && [ -d "$folder" ]; then rmdir --ignore-fail-on-non-empty "$folder"; fi
done
echo "uninstall: removed the ${#files[@]} files that $manifest lists"
