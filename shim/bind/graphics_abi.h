/* SPDX-License-Identifier: MIT */
/*
 * The types of cudaGL.h and cudaEGL.h (13.0) that the entry points for OpenGL and EGL need, so that
 * no toolkit is needed for them either: tests/abi compares it with those headers.
 */
#pragma once

#include "shim/bind/cuda_abi.h"

typedef unsigned int GLuint;

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
