using KvCluster.Client;
using Microsoft.Extensions.Logging;

namespace KvCluster.Extensions.Caching;

/// <summary>
/// Makes calls without which a request can go on: each has a time, and when it fails or takes longer, that is no exception but no answer. The log says so, once
/// in a while. Any thread.
/// </summary>
/// <param name="cache">Names the cache in the log.</param>
/// <param name="timeout">The longest time of a call.</param>
/// <param name="time">For the log.</param>
/// <param name="log">Where what callers are not told goes.</param>
internal sealed class CacheCalls(string cache, TimeSpan timeout, TimeProvider time, ILogger log)
{
    /// <summary>Between two lines in the log. While a cluster is away, all requests of a program fail.</summary>
    private static readonly TimeSpan Quiet = TimeSpan.FromSeconds(10);

    private long _failures;
    private long _quietUntil;

    /// <summary>Makes a call.</summary>
    /// <exception cref="OperationCanceledException">The caller stopped waiting.</exception>
    public async ValueTask<CacheAnswer<T>> AskAsync<T>(Func<CancellationToken, ValueTask<T>> call, CancellationToken cancellationToken)
    {
        using var bounded = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        bounded.CancelAfter(timeout);
        try
        {
            return new CacheAnswer<T>(true, await call(bounded.Token).ConfigureAwait(false));
        }
        catch (KvConditionFailedException)
        {
            // Another caller was faster, and what it did counts.
            return default;
        }
        catch (KvException failure)
        {
            Note($"{failure.Reason}: {failure.Message}", failure);
            return default;
        }
        catch (OperationCanceledException stopped) when (cancellationToken.IsCancellationRequested)
        {
            throw new OperationCanceledException(stopped.Message, stopped, cancellationToken);
        }
        catch (OperationCanceledException stopped)
        {
            Note($"There was no answer within {timeout}.", stopped);
            return default;
        }
    }

    /// <summary>Notes that a request goes on without the cache.</summary>
    public void Note(string why, Exception? failure)
    {
        Interlocked.Increment(ref _failures);
        var (now, until) = (time.GetTimestamp(), Volatile.Read(ref _quietUntil));
        var next = now + (long)(Quiet.TotalSeconds * time.TimestampFrequency);
        if (now >= until && Interlocked.CompareExchange(ref _quietUntil, next, until) == until)
            CacheLog.WentWithout(log, cache, Interlocked.Exchange(ref _failures, 0), why, failure);
    }
}

/// <summary>What a call returned, if it was answered.</summary>
internal readonly record struct CacheAnswer<T>(bool IsAnswered, T? Result);
