namespace KvCluster.Cli.Commands;

/// <summary>
/// Tells whoever called a command that its call, which may take long, goes on. On standard error, also with `--output json`, because a script that logs it
/// would not know otherwise. A node that stands still is noticed by the call itself, which then fails.
/// </summary>
internal static class LongCall
{
    /// <summary>A second less than the longest silence that is promised.</summary>
    private static readonly TimeSpan SilenceMax = TimeSpan.FromSeconds(4);

    /// <summary>Waits for a call.</summary>
    /// <param name="call">The call, which ends when the command is interrupted.</param>
    /// <param name="what">What goes on, as a sentence without its point.</param>
    public static Task<T> EndAsync<T>(Task<T> call, string what) => EndAsync(call, what, TimeProvider.System, StandardError.Tell);

    /// <inheritdoc cref="EndAsync{T}(Task{T}, string)"/>
    /// <param name="time">By which the silence is measured.</param>
    /// <param name="tell">Gets each line.</param>
    internal static async Task<T> EndAsync<T>(Task<T> call, string what, TimeProvider time, Action<string> tell)
    {
        var begun = time.GetTimestamp();
        while (await Task.WhenAny(call, Task.Delay(SilenceMax, time)) != call)
            tell($"{what}, for {Text.Number((long)time.GetElapsedTime(begun).TotalSeconds)} s so far");
        return await call;
    }
}
