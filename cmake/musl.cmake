# SPDX-License-Identifier: Apache-2.0
# Native processor, musl as the C library; programs are static. cmocka is a glibc library, so only what needs none builds.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${CMAKE_HOST_SYSTEM_PROCESSOR})
set(CMAKE_C_COMPILER musl-gcc)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY NEVER)
set(CMAKE_DISABLE_FIND_PACKAGE_cmocka ON)
