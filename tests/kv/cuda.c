/* Stands in for libcuda.so.1 and libcudart.so.12. NIXL's libfabric plugin is linked with both, and
 * calls them for memory of a GPU alone: a host without a GPU's driver could not load the plugin.
 * Every call fails, so that no memory counts as a GPU's.
 *
 * The compiler makes one shared object of this file for each of the two names: the loader asks for
 * the names. */

/* What the driver answers where no device is (CUDA_ERROR_NO_DEVICE, cudaErrorNoDevice). */
enum { NO_DEVICE = 100 };

int cuCtxSetCurrent(void *context)
{
    (void)context;
    return NO_DEVICE;
}

int cuDeviceGetPCIBusId(char *id, int length, int device)
{
    (void)device;
    if (length > 0)
        id[0] = '\0';
    return NO_DEVICE;
}

int cuPointerGetAttributes(unsigned count, int *attributes, void **data, unsigned long long pointer)
{
    (void)count, (void)attributes, (void)data, (void)pointer;
    return NO_DEVICE;
}

int cudaSetDevice(int device)
{
    (void)device;
    return NO_DEVICE;
}

const char *cudaGetErrorString(int error)
{
    (void)error;
    return "there is no GPU here";
}
