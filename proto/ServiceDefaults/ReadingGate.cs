// Keeps connections from being read while the thread pool is overloaded. Kestrel queues each request as a work item of the pool as soon as its headers are
// there, in one queue for the whole process. With 400 connections of 500 requests each, everything else, including the streams between nodes, waited for
// seconds behind 200,000 work items. Data that is not read costs nothing, and its sender waits. Any thread; the gate's own thread runs while somebody waits.
using System.IO.Pipelines;
using System.Runtime.CompilerServices;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Server.Kestrel.Core;

namespace KvCluster.ServiceDefaults;

/// <summary>Lets connections of clients be read, in turn if the queue is long.</summary>
/// <param name="queued">Returns the number of work items that wait for a thread of the pool.</param>
/// <param name="queuedMax">Beyond this nothing more is read. One read may add some hundred requests to it.</param>
/// <param name="batch">The number of reads let through at once when the queue has become short.</param>
/// <param name="looksWithoutAny">The number of looks, a millisecond apart, after which one read is let through although the queue is long. Otherwise nothing
/// would be read at all if the queue never became short.</param>
internal sealed class ReadingGate(Func<long> queued, int queuedMax, int batch, int looksWithoutAny = ReadingGate.LooksWithoutAnyDefault)
{
    /// <summary>A work item that begins a request takes about 30 microseconds, so this many take about 30 ms on any number of processors.</summary>
    private const int QueuedMaxPerProcessor = 1_000;

    private const int BatchPerProcessor = 8;

    private const int LooksWithoutAnyDefault = 16;

    private static readonly TimeSpan Interval = TimeSpan.FromMilliseconds(1);

    private readonly Lock _lock = new();
    private readonly LinkedList<TaskCompletionSource<bool>> _waiting = [];
    private readonly AutoResetEvent _somebodyWaits = new(initialState: false);
    private Thread? _watch;
    private int _waiters;

    /// <summary>The gate of the process, because the thread pool is the process's too.</summary>
    public static ReadingGate OfProcess { get; } =
        new(static () => ThreadPool.PendingWorkItemCount, Environment.ProcessorCount * QueuedMaxPerProcessor, Environment.ProcessorCount * BatchPerProcessor);

    /// <summary>The number of connections that wait.</summary>
    public int Waiting => Volatile.Read(ref _waiters);

    /// <summary>Makes all connections of a listener pass this gate.</summary>
    public void Guard(ListenOptions listen) => listen.Use(next => connection => RunAsync(next, connection));

    /// <summary>Completes when the data received on a connection may be processed, mostly at once.</summary>
    /// <param name="closed">Cancelled when the connection closes.</param>
    /// <returns>False if the connection ended before its turn came.</returns>
    public ValueTask<bool> PassAsync(CancellationToken closed) =>
        Volatile.Read(ref _waiters) == 0 && queued() <= queuedMax ? ValueTask.FromResult(true) : new ValueTask<bool>(WaitAsync(closed));

    private async Task<bool> WaitAsync(CancellationToken closed)
    {
        var turn = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
        LinkedListNode<TaskCompletionSource<bool>> place;
        lock (_lock)
        {
            place = _waiting.AddLast(turn);
            Volatile.Write(ref _waiters, _waiting.Count);
            if (_watch is null)
            {
                // A separate thread, because the pool is overloaded.
                _watch = new Thread(Watch) { IsBackground = true, Name = "reading gate" };
                _watch.Start();
            }
        }
        _somebodyWaits.Set();
        using var registration = closed.UnsafeRegister(_ => GiveUp(place), null);
        return await turn.Task.ConfigureAwait(false);
    }

    // Removes a waiting connection that was closed, because otherwise thousands that come and go would fill the queue.
    private void GiveUp(LinkedListNode<TaskCompletionSource<bool>> place)
    {
        lock (_lock)
        {
            if (place.List is null)
                return;
            _waiting.Remove(place);
            Volatile.Write(ref _waiters, _waiting.Count);
        }
        place.Value.SetResult(false);
    }

    private async Task RunAsync(ConnectionDelegate next, ConnectionContext connection)
    {
        var transport = connection.Transport;
        connection.Transport = new GatedPipe(new GatedReader(transport.Input, this, connection.ConnectionClosed), transport.Output);
        try
        {
            await next(connection).ConfigureAwait(false);
        }
        finally
        {
            connection.Transport = transport;
        }
    }

    private void Watch()
    {
        var looks = 0;
        while (true)
        {
            if (Waiting == 0)
                _somebodyWaits.WaitOne();
            looks = LetSomeThrough(looks) ? 0 : looks + 1;
            Thread.Sleep(Interval);
        }
    }

    private bool LetSomeThrough(int looks)
    {
        lock (_lock)
        {
            var passed = 0;
            // Half the limit, because what these reads bring is queued only after all of them have passed.
            while (passed < batch && _waiting.Count > 0 && (queued() <= queuedMax / 2 || (passed == 0 && looks >= looksWithoutAny)))
            {
                var turn = _waiting.First!.Value;
                _waiting.RemoveFirst();
                Volatile.Write(ref _waiters, _waiting.Count);
                turn.SetResult(true);
                passed++;
            }
            return passed > 0;
        }
    }

    private sealed class GatedPipe(PipeReader input, PipeWriter output) : IDuplexPipe
    {
        public PipeReader Input => input;

        public PipeWriter Output => output;
    }

    private sealed class GatedReader(PipeReader inner, ReadingGate gate, CancellationToken closed) : PipeReader
    {
        public override bool TryRead(out ReadResult result) => inner.TryRead(out result);

        // Most reads wait for data to arrive, so the gate is passed after the read.
        [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
        public override async ValueTask<ReadResult> ReadAsync(CancellationToken cancellationToken = default)
        {
            var result = await inner.ReadAsync(cancellationToken).ConfigureAwait(false);
            // The end of a connection does not wait. A read that is cancelled at the gate is reported by the next one.
            if (result.IsCanceled || result.Buffer.IsEmpty || await gate.PassAsync(closed).ConfigureAwait(false))
                return result;
            // The connection has ended, and nobody can be answered. Data received before the end is dropped, because otherwise a sender that closes its
            // connection would bypass the gate.
            return new ReadResult(result.Buffer.Slice(0, 0), isCanceled: false, isCompleted: true);
        }

        public override void AdvanceTo(SequencePosition consumed) => inner.AdvanceTo(consumed);

        public override void AdvanceTo(SequencePosition consumed, SequencePosition examined) => inner.AdvanceTo(consumed, examined);

        public override void CancelPendingRead() => inner.CancelPendingRead();

        public override void Complete(Exception? exception = null) => inner.Complete(exception);

        public override ValueTask CompleteAsync(Exception? exception = null) => inner.CompleteAsync(exception);
    }
}
