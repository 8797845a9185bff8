// What the calls of a process may hold in memory together. Made once by node or router from its setting; the parts are used by any thread.
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.Serving.Memory;

/// <summary>
/// The budget of bytes under way, in four equal parts, so that none of the four can keep the others out: requests of which a part has come, requests
/// that are being served, replies that were made and not written, and responses that were written and are not read.
/// </summary>
internal sealed class CallMemory(int mebibytes)
{
    /// <summary>A part has room for the largest request also when its last quarter is kept for small ones.</summary>
    public const int MebibytesMin = 128;

    /// <summary>Enough to keep a fast network busy with the largest values, little beside what the system caches of the data.</summary>
    public const int MebibytesDefault = 256;

#if GRPC_IN_TREE
    private readonly Grpc.AspNetCore.Server.Calls.MessageMemory _messages = new(((long)mebibytes << 20) / 4, ((long)mebibytes << 20) / 4);
#endif

    /// <summary>Of requests from when they have come whole until they are answered.</summary>
    public ByteBudget Requests { get; } = new(((long)mebibytes << 20) / 4);

    /// <summary>Of replies until they are written to their stream.</summary>
    public ByteBudget Replies { get; } = new(((long)mebibytes << 20) / 4);

    /// <summary>Whether a unary response of so many bytes can be written now; otherwise its call is refused before it is made.</summary>
    public bool MayRespond(int bytes)
    {
#if GRPC_IN_TREE
        return _messages.Leaving.HasRoom(bytes);
#else
        return true;
#endif
    }

    /// <summary>Has a server's calls keep to the other two parts.</summary>
    public void AddTo(IServiceCollection services)
    {
        services.AddSingleton(this);
#if GRPC_IN_TREE
        services.AddSingleton(_messages);
#endif
    }
}
