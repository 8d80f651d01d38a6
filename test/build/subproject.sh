#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The source tree as a part of another project: by add_subdirectory and by FetchContent, as docs/c.md shows, static and
# shared. Tests, tool and examples are no part of it then, and the outer project's flags and build type stay its own.
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"
need cmake gcc
expected=$SWIGLU_SOURCE/test/build/expected/minimal.txt

mkdir "$scratch/user"
cp "$SWIGLU_SOURCE/examples/minimal.c" "$scratch/user"
cat >"$scratch/user/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.18)
project(user LANGUAGES C)
if(USER_WAY STREQUAL "fetch")
    include(FetchContent)
    FetchContent_Declare(swiglu SOURCE_DIR ${SWIGLU_SOURCE})
    FetchContent_MakeAvailable(swiglu)
else()
    add_subdirectory(${SWIGLU_SOURCE} swiglu)
endif()
add_executable(minimal minimal.c)
target_link_libraries(minimal PRIVATE swiglu::swiglu_static)
add_executable(minimal_shared minimal.c)
target_link_libraries(minimal_shared PRIVATE swiglu::swiglu)
if(TARGET check_kernels OR TARGET example_minimal OR TARGET swiglu_tool)
    message(FATAL_ERROR "tests, examples or the tool of swiglu are part of the user's project")
endif()
if(CMAKE_BUILD_TYPE OR CMAKE_C_FLAGS)
    message(FATAL_ERROR "swiglu changed the user's build type or flags: '${CMAKE_BUILD_TYPE}', '${CMAKE_C_FLAGS}'")
endif()
CMAKE
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache); fi
for way in subdirectory fetch; do
    quietly cmake -S "$scratch/user" -B "$scratch/$way" -DUSER_WAY=$way "-DSWIGLU_SOURCE=$SWIGLU_SOURCE" "${launcher[@]}"
done
quietly cmake --build "$scratch/subdirectory" --target minimal minimal_shared -j 2
"$scratch/subdirectory/minimal" | diff -u "$expected" -
"$scratch/subdirectory/minimal_shared" | diff -u "$expected" -
