using KvCluster.Client;

namespace KvCluster.Tests.Conformance;

/// <summary>Calls that a store must refuse.</summary>
internal static class Refused
{
    /// <summary>The reason with which a call is refused.</summary>
    public static async Task<string> ReasonOfAsync<T>(Func<ValueTask<T>> call) =>
        (await Assert.ThrowsAnyAsync<KvException>(() => call().AsTask())).Reason;
}
