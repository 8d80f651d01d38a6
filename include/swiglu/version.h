/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SWIGLU_VERSION_H
#define SWIGLU_VERSION_H

/* The version of these headers. swiglu_version() tells the version of the library that was linked. */
#define SWIGLU_VERSION_MAJOR 0
#define SWIGLU_VERSION_MINOR 1
#define SWIGLU_VERSION_PATCH 0
#define SWIGLU_VERSION_STRING "0.1.0"

/* Counts incompatible changes of the binary interface; equals the shared library's SOVERSION. */
#define SWIGLU_ABI 1
#define SWIGLU_CONTRACT 1 /* changes when any output bit may */

#endif
