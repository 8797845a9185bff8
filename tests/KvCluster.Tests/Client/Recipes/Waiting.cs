namespace KvCluster.Tests.Client.Recipes;

/// <summary>Waits for what recipes tell.</summary>
internal static class Waiting
{
    /// <summary>Waits until a token is cancelled.</summary>
    public static async Task WaitAsync(this CancellationToken cancelled)
    {
        var signal = new TaskCompletionSource(TaskCreationOptions.RunContinuationsAsynchronously);
        await using (cancelled.Register(signal.SetResult))
            await signal.Task.WaitAsync(Eventually.Limit);
    }
}
