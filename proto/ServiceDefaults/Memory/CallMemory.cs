// Limits the memory of all calls of a process together. How many may be open follows from it, and OpenCallLimit refuses those that are too many. Created once
// by node or router from its setting; its parts are used by any thread.
using Grpc.Core;
using KvCluster.ServiceDefaults.Calls;
using Microsoft.Extensions.DependencyInjection;

namespace KvCluster.ServiceDefaults.Memory;

/// <summary>
/// The budget for the bytes of calls. Calls that are too many are refused by <see cref="OpenCallLimit"/> before they take any of it. The budget has four equal
/// parts, so that none of them can exhaust the others: requests that have partly arrived, requests that are being served, replies that wait to be written,
/// and responses that were written but not read. What one caller may hold of it: <see cref="OpenCallLimit"/> (open calls of a connection),
/// <see cref="Exchanges.ExchangePlaces"/> and <see cref="FairPlaces"/> (requests by stream and shard), <see cref="StalledWrite"/> (replies that it does not
/// read), and <see cref="Exchanges.GatheredReplies"/> (the replies of a stream). Requests that have partly arrived have no bound by caller:
/// <c>HeldMessages</c> ends the slowest.
/// </summary>
internal sealed class CallMemory(int mebibytes)
{
    /// <summary>With this much, a part has room for the largest request even though its last quarter is reserved for small ones.</summary>
    public const int MebibytesMin = 128;

    /// <summary>Enough to keep a fast network busy with the largest values, and little compared with what the system caches of the data.</summary>
    public const int MebibytesDefault = 256;

    /// <summary>
    /// Open calls for each MiB of the budget, 16,384 by default. A call costs about 8 KiB besides its messages, and 25 KiB with the largest headers that a
    /// listener accepts, whose strings have two bytes per character. All of them together cost half as much as the budget, and one and a half times as much
    /// at worst. 10,000 waiting streams fit in the three quarters that callers with several calls may have.
    /// </summary>
    public const int OpenCallsPerMebibyte = 64;

    private static readonly TimeSpan RetryDelay = TimeSpan.FromMilliseconds(50);

    private readonly MessageMemory _messages = new(((long)mebibytes << 20) / 4, ((long)mebibytes << 20) / 4);
    private readonly OpenCallLimit _open = new(mebibytes * OpenCallsPerMebibyte, NoPlace(mebibytes * OpenCallsPerMebibyte));

    /// <summary>For requests, from when they have completely arrived until they are answered.</summary>
    public ByteBudget Requests { get; } = new(((long)mebibytes << 20) / 4);

    /// <summary>For replies, until they are written to their stream.</summary>
    public ByteBudget Replies { get; } = new(((long)mebibytes << 20) / 4);

    /// <summary>
    /// The number of calls refused so far because too many were open. They are refused before anything is allocated for them, and are counted nowhere else.
    /// </summary>
    public long CallsRefused => _open.Refused;

    /// <summary>
    /// The number of calls so far that were not begun, because their caller went away or their deadline passed while their request arrived. They are counted
    /// nowhere else.
    /// </summary>
    public long CallsGone => _open.Gone;

    /// <summary>Whether a unary response of this size can be written now. If not, its call is refused before the response is made.</summary>
    public bool MayRespond(int bytes) => _messages.Leaving.HasRoom(bytes);

    /// <summary>Applies the other two parts and the limit of open calls to a server.</summary>
    public void AddTo(IServiceCollection services) => services.AddSingleton(this).AddSingleton(_messages).AddSingleton(_open);

    private static RpcException NoPlace(int callsMax)
    {
        var status = StatusDetails.Create(
            StatusCode.ResourceExhausted,
            $"The server allows {callsMax} open calls, and this connection has reached its share of them; nothing was applied. "
            + $"Try again, or have fewer calls open.",
            StatusDetails.Info("BUSY", StatusDetails.NotApplied));
        return StatusDetails.WithWait(status, RetryDelay).ToRpcException();
    }
}
