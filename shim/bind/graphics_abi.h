/* SPDX-License-Identifier: MIT */
/*
 * The types of cudaGL.h, cudaEGL.h and cudaVDPAU.h (13.0) that the entry points for OpenGL, EGL and
 * VDPAU need, so that no toolkit is needed for them either: tests/abi compares it with those
 * headers.
 */
#pragma once

#include "shim/bind/cuda_abi.h"

typedef unsigned int GLuint;

/* Of vdpau/vdpau.h, which cudaVDPAU.h includes. */
typedef unsigned int VdpDevice;
typedef int VdpGetProcAddress(VdpDevice device, unsigned int function, void **ret_function);

typedef struct CUeglStreamConnection_st *CUeglStreamConnection;

/* Passed by value, so its size and alignment matter; handed through as it is. */
typedef struct CUeglFrame_st {
	union {
		CUarray pArray[3];
		void *pPitch[3];
	} frame;
	unsigned int width;
	unsigned int height;
	unsigned int depth;
	unsigned int pitch;
	unsigned int planeCount;
	unsigned int numChannels;
	unsigned int frameType;
	unsigned int eglColorFormat;
	unsigned int cuFormat;
} CUeglFrame;
