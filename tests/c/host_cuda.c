/* A stand-in for CUDA's runtime library on hosts without a GPU. aws-ofi-nccl refuses to start without that
 * library, and its functional tests allocate their buffers with it. Here all memory is the host's.
 *
 * The plugin asks the runtime for functions of the driver by name. The stand-in has those that the plugin calls
 * for memory of the host, and answers "not supported" in the place of each other one.
 *
 * It needs no header of CUDA's: the numbers below are part of CUDA's binary interface. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0,
    OUT_OF_MEMORY = 2,
    NOT_SUPPORTED = 801,
    VERSION = 13000,
    PAGE = 4096,
    ATTRIBUTE_MEMORY_TYPE = 2,
    MEMORY_OF_A_DEVICE = 2,
};

static int refuse(void)
{
    return NOT_SUPPORTED;
}

static int accept(void)
{
    return SUCCESS;
}

static int allocate(void **place, size_t size)
{
    size_t whole = (size + PAGE - 1) / PAGE * PAGE;
    *place = aligned_alloc(PAGE, whole ? whole : PAGE);
    return *place ? SUCCESS : OUT_OF_MEMORY;
}

static int release(void *memory)
{
    free(memory);
    return SUCCESS;
}

static int driver_version(int *version)
{
    *version = VERSION;
    return SUCCESS;
}

static int text_of(int code, const char **text)
{
    *text = code == SUCCESS ? "no error" : "refused by the stand-in for CUDA";
    return SUCCESS;
}

static int first_device(int *device)
{
    *device = 0;
    return SUCCESS;
}

/* The answer 0 means that the device has no GPUDirect RDMA and no DMA-BUF. */
static int no_attribute(int *value)
{
    *value = 0;
    return SUCCESS;
}

/* Whatever the plugin takes for memory of a GPU is of the first device. */
static int pointer_attributes(unsigned count, const int *attributes, void **values, unsigned long long pointer)
{
    (void)pointer;
    for (unsigned i = 0; i < count; i++) {
        *(int *)values[i] = attributes[i] == ATTRIBUTE_MEMORY_TYPE ? MEMORY_OF_A_DEVICE : 0;
    }
    return SUCCESS;
}

static int no_context(void **context)
{
    *context = NULL;
    return SUCCESS;
}

static int copy_up(void *to, const void *from, size_t size)
{
    memcpy(to, from, size);
    return SUCCESS;
}

static const struct {
    const char *name;
    void *function;
} driver[] = {
    {"cuDriverGetVersion", driver_version},
    {"cuGetErrorString", text_of},
    {"cuGetErrorName", text_of},
    {"cuCtxGetDevice", first_device},
    {"cuCtxGetCurrent", no_context},
    {"cuCtxSetCurrent", accept},
    {"cuDeviceGetAttribute", no_attribute},
    {"cuPointerGetAttributes", pointer_attributes},
    {"cuMemAlloc", allocate},
    {"cuMemFree", release},
    {"cuMemcpyHtoDAsync", copy_up},
    {"cuStreamCreate", no_context},
    {"cuStreamSynchronize", accept},
    {"cuStreamDestroy", accept},
    {"cuThreadExchangeStreamCaptureMode", accept},
};

int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, unsigned long long flags,
                     int *result)
{
    (void)version;
    (void)flags;
    *function = refuse;
    for (size_t i = 0; i < sizeof driver / sizeof *driver; i++) {
        if (strcmp(driver[i].name, name) == 0) {
            *function = driver[i].function;
        }
    }
    if (result) {
        *result = SUCCESS;
    }
    return SUCCESS;
}

int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *result)
{
    return cudaGetDriverEntryPointByVersion(name, function, 0, flags, result);
}

int cudaRuntimeGetVersion(int *version)
{
    return driver_version(version);
}

const char *cudaGetErrorString(int code)
{
    const char *text;
    text_of(code, &text);
    return text;
}

int cudaSetDevice(int device)
{
    (void)device;
    return SUCCESS;
}

int cudaMalloc(void **place, size_t size)
{
    return allocate(place, size);
}

int cudaHostAlloc(void **place, size_t size, unsigned flags)
{
    (void)flags;
    return allocate(place, size);
}

int cudaFree(void *memory)
{
    return release(memory);
}

int cudaFreeHost(void *memory)
{
    return release(memory);
}

int cudaMemset(void *memory, int value, size_t size)
{
    memset(memory, value, size);
    return SUCCESS;
}

int cudaMemcpy(void *to, const void *from, size_t size, int direction)
{
    (void)direction;
    return copy_up(to, from, size);
}

int cudaStreamSynchronize(void *stream)
{
    (void)stream;
    return SUCCESS;
}

int cudaDeviceSynchronize(void)
{
    return SUCCESS;
}
