// What the calls of a process may hold in memory together, and how many may be open. Made once by node or router from its setting; the parts are used by any thread.
#if GRPC_IN_TREE
using Google.Protobuf.WellKnownTypes;
using Google.Rpc;
using Grpc.AspNetCore.Server.Calls;
using Grpc.Core;
#endif
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.ServiceDefaults.Memory;

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

    /// <summary>
    /// Open calls for each MiB of the budget, 16,384 by default. One costs some 8 KiB beside its messages, and 25 KiB with the largest headers that a
    /// listener takes, whose strings have two bytes a character: all of them cost half as much again as the budget, and one and a half times as much at worst.
    /// 10,000 streams that wait fit in the three quarters that callers with several calls may have.
    /// </summary>
    public const int OpenCallsPerMebibyte = 64;

#if GRPC_IN_TREE
    private static readonly TimeSpan RetryDelay = TimeSpan.FromMilliseconds(50);

    private readonly MessageMemory _messages = new(((long)mebibytes << 20) / 4, ((long)mebibytes << 20) / 4);
    private readonly OpenCalls _open = new(mebibytes * OpenCallsPerMebibyte, NoPlace(mebibytes * OpenCallsPerMebibyte));
#endif

    /// <summary>Of requests from when they have come whole until they are answered.</summary>
    public ByteBudget Requests { get; } = new(((long)mebibytes << 20) / 4);

    /// <summary>Of replies until they are written to their stream.</summary>
    public ByteBudget Replies { get; } = new(((long)mebibytes << 20) / 4);

    /// <summary>Calls that found no place among those that may be open, so far: they are refused before anything is made for them, and counted nowhere else.</summary>
    public long CallsRefused
    {
        get
        {
#if GRPC_IN_TREE
            return _open.Refused;
#else
            return 0;
#endif
        }
    }

    /// <summary>Whether a unary response of so many bytes can be written now; otherwise its call is refused before it is made.</summary>
    public bool MayRespond(int bytes)
    {
#if GRPC_IN_TREE
        return _messages.Leaving.HasRoom(bytes);
#else
        return true;
#endif
    }

    /// <summary>Has a server's calls keep to the other two parts, and to the places.</summary>
    public void AddTo(IServiceCollection services)
    {
        services.AddSingleton(this);
#if GRPC_IN_TREE
        services.AddSingleton(_messages).AddSingleton(_open);
#endif
    }

#if GRPC_IN_TREE
    private static RpcException NoPlace(int callsMax)
    {
        var status = StatusDetails.Create(
            StatusCode.ResourceExhausted,
            $"The server has {callsMax} places for open calls, and this connection has its share of them; nothing was applied. Try again, or have fewer calls open.",
            StatusDetails.Info("BUSY", StatusDetails.NotApplied));
        status.Details.Add(Any.Pack(new RetryInfo { RetryDelay = Duration.FromTimeSpan(RetryDelay) }));
        return status.ToRpcException();
    }
#endif
}
