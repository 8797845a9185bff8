// One BulkLoad stream, the same at node and router. A chunk is begun when it arrives, so that chunks keep their order, and answered when it and all before it
// are done. A caller that sends faster than chunks are done waits after a few; one that does not read its answers is ended.
using System.Threading.Channels;
using Grpc.Core;
using KvCluster.ServiceDefaults.Memory;
using KvCluster.Wire;

namespace KvCluster.ServiceDefaults.Exchanges;

/// <summary>Runs one stream of chunks.</summary>
/// <param name="load">Begins a chunk, given its message, which it returns, and the number that it must have. The task's message is the answer, or has the
/// error.</param>
/// <param name="answers">The caller.</param>
/// <param name="replies">The budget of replies.</param>
internal sealed class BulkLoadStream(
    Func<MessageBytes, ulong, CancellationToken, Task<MessageBytes>> load, IServerStreamWriter<MessageBytes> answers, ByteBudget replies)
{
    /// <summary>Enough that one chunk is read while others are on their way to the disks; each has up to 16 MiB.</summary>
    private const int ChunksOpenMax = 4;

    private static readonly Google.Rpc.Status NotRead = StatusDetails.Create(
        StatusCode.ResourceExhausted,
        "The caller does not read the acknowledgements of its load. Chunks that are not acknowledged may have been applied; send them again on a new stream.",
        StatusDetails.Info("NOT_READ", StatusDetails.MaybeApplied));

    /// <summary>The error message for a chunk without entries.</summary>
    public const string NoEntry = "The chunk has no entry. Nothing of it was applied.";

    /// <summary>The error message for a chunk with another number than the one that it must have.</summary>
    public static string WrongNumber(ulong expected, ulong told) =>
        $"Chunk {expected} was expected, and the one that came says that it is {told}. Nothing of it was applied; "
        + "count the chunks of a stream from 1 without a gap.";

    /// <summary>Completes when the caller has completed its side and every chunk is acknowledged.</summary>
    /// <exception cref="RpcException">A chunk was refused, or the stream broke.</exception>
    public async Task RunAsync(IAsyncStreamReader<MessageBytes> chunks, CancellationToken cancellationToken)
    {
        using var refused = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
        // The channel has one place less than chunks may be open, because AnswerAllAsync awaits one more.
        var open = Channel.CreateBounded<Task<MessageBytes>>(new BoundedChannelOptions(ChunksOpenMax - 1) { SingleReader = true, SingleWriter = true });
        var answering = AnswerAllAsync(open.Reader, refused);
        try
        {
            for (var number = 1ul; await open.Writer.WaitToWriteAsync(refused.Token).ConfigureAwait(false)
                && await chunks.MoveNext(refused.Token).ConfigureAwait(false); number++)
                open.Writer.TryWrite(load(chunks.Current, number, refused.Token));
        }
        catch (Exception) when (refused.IsCancellationRequested && !cancellationToken.IsCancellationRequested)
        {
            // The answering says why.
        }
        finally
        {
            open.Writer.Complete();
            await answering.ConfigureAwait(false);
        }
    }

    // Awaits every chunk, also after a failure, because each gives back what it holds when it ends.
    private async Task AnswerAllAsync(ChannelReader<Task<MessageBytes>> open, CancellationTokenSource refused)
    {
        Exception? failure = null;
        await foreach (var loading in open.ReadAllAsync().ConfigureAwait(false))
        {
            try
            {
                var answer = await loading.ConfigureAwait(false);
                if (failure is not null)
                    answer.Return();
                else if (answer.Error is { } refusal)
                    failure = refusal.ToRpcException();
                else if (!await StalledWrite.EndsAsync(answers.WriteAsync(answer), replies, refused.Token).ConfigureAwait(false))
                    failure = NotRead.ToRpcException();
            }
            catch (Exception broken)
            {
                failure ??= broken;
            }
            if (failure is not null)
                await refused.CancelAsync().ConfigureAwait(false);
        }
        if (failure is not null)
            throw failure;
    }
}
