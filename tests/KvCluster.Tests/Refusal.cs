using Google.Rpc;
using Grpc.Core;

namespace KvCluster.Tests;

/// <summary>Expects that a call is refused as the contract says.</summary>
internal static class Refusal
{
    /// <summary>The call ends with a status and a reason of this project. Returns the details, which have more.</summary>
    /// <param name="call">The call, or the read of a stream.</param>
    /// <param name="code">The status.</param>
    /// <param name="reason">The reason.</param>
    /// <param name="told">What the message contains.</param>
    public static async Task<ErrorInfo> ExpectAsync(Func<Task> call, StatusCode code, string reason, string told = "")
    {
        var refused = await Assert.ThrowsAsync<RpcException>(call);
        var info = refused.GetRpcStatus()?.GetDetail<ErrorInfo>();
        Assert.Equal((code, reason, "kvcluster.dev"), (refused.StatusCode, info?.Reason ?? refused.Status.Detail, info?.Domain));
        Assert.Contains(told, refused.Status.Detail, StringComparison.Ordinal);
        return info!;
    }
}
