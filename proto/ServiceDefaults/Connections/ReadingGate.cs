// Keeps connections from being read while the thread pool is overloaded. Kestrel queues each request as a work item of the pool as soon as its headers are
// there, in one queue for the whole process. With 400 connections of 500 requests each, everything else, including the streams between nodes, waited for
// seconds behind 200,000 work items. Data that is not read costs nothing, and its sender waits. Hosts take turns, so thousands of connections of one host
// do not delay those of another. Any thread; the gate's own thread runs while somebody waits.
using System.IO.Pipelines;
using System.Net;
using System.Runtime.CompilerServices;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Server.Kestrel.Core;

namespace KvCluster.ServiceDefaults.Connections;

/// <summary>Lets connections of clients be read, in turns by host if the queue is long.</summary>
/// <param name="queued">Returns the number of work items that wait for a thread of the pool.</param>
/// <param name="queuedMax">Beyond this nothing more is read. One read may add some thousand requests to it.</param>
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
    private readonly Dictionary<IPAddress, Host> _hosts = [];

    /// <summary>The hosts whose connections wait, in the order of their turns.</summary>
    private readonly LinkedList<Host> _turns = [];
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
    /// <param name="address">The host at the other end, as <see cref="RemoteHost"/> tells it.</param>
    /// <param name="closed">Cancelled when the connection closes.</param>
    /// <returns>False if the connection ended before its turn came.</returns>
    public ValueTask<bool> PassAsync(IPAddress address, CancellationToken closed) =>
        Volatile.Read(ref _waiters) == 0 && queued() <= queuedMax ? ValueTask.FromResult(true) : new ValueTask<bool>(WaitAsync(address, closed));

    private async Task<bool> WaitAsync(IPAddress address, CancellationToken closed)
    {
        var turn = new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously);
        Host? host;
        LinkedListNode<TaskCompletionSource<bool>> place;
        lock (_lock)
        {
            if (!_hosts.TryGetValue(address, out host))
            {
                _hosts[address] = host = new Host(address);
                _turns.AddLast(host.Turn);
            }
            place = host.Waiting.AddLast(turn);
            Volatile.Write(ref _waiters, _waiters + 1);
            if (_watch is null)
            {
                // A separate thread, because the pool is overloaded.
                _watch = new Thread(Watch) { IsBackground = true, Name = "reading gate" };
                _watch.Start();
            }
        }
        _somebodyWaits.Set();
        using var registration = closed.UnsafeRegister(_ => GiveUp(host, place), null);
        return await turn.Task.ConfigureAwait(false);
    }

    // Removes a waiting connection that was closed, because otherwise thousands that come and go would fill the queue.
    private void GiveUp(Host host, LinkedListNode<TaskCompletionSource<bool>> place)
    {
        lock (_lock)
        {
            if (place.List is null)
                return;
            RemoveLocked(host, place);
        }
        place.Value.SetResult(false);
    }

    private void RemoveLocked(Host host, LinkedListNode<TaskCompletionSource<bool>> place)
    {
        Invariant.CheckHeld(_lock);
        host.Waiting.Remove(place);
        Volatile.Write(ref _waiters, _waiters - 1);
        if (host.Waiting.Count > 0)
            return;
        _turns.Remove(host.Turn);
        _hosts.Remove(host.Address);
    }

    private async Task RunAsync(ConnectionDelegate next, ConnectionContext connection)
    {
        var transport = connection.Transport;
        connection.Transport = new PipeWithInput(
            new GatedReader(transport.Input, this, RemoteHost.Of(connection.RemoteEndPoint), connection.ConnectionClosed), transport.Output);
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
            while (passed < batch && _waiters > 0 && (queued() <= queuedMax / 2 || (passed == 0 && looks >= looksWithoutAny)))
            {
                var host = _turns.First!.Value;
                _turns.RemoveFirst();
                _turns.AddLast(host.Turn);
                var place = host.Waiting.First!;
                RemoveLocked(host, place);
                place.Value.SetResult(true);
                passed++;
            }
            return passed > 0;
        }
    }

    /// <summary>The connections of a host that wait, oldest first.</summary>
    private sealed class Host
    {
        public Host(IPAddress address)
        {
            Address = address;
            Turn = new LinkedListNode<Host>(this);
        }

        public IPAddress Address { get; }

        public LinkedListNode<Host> Turn { get; }

        public LinkedList<TaskCompletionSource<bool>> Waiting { get; } = [];
    }

    private sealed class GatedReader(PipeReader inner, ReadingGate gate, IPAddress host, CancellationToken closed) : PipeReader
    {
        public override bool TryRead(out ReadResult result) => inner.TryRead(out result);

        // Most reads wait for data to arrive, so the gate is passed after the read.
        [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
        public override async ValueTask<ReadResult> ReadAsync(CancellationToken cancellationToken = default)
        {
            var result = await inner.ReadAsync(cancellationToken).ConfigureAwait(false);
            // The end of a connection does not wait. A read that is cancelled at the gate is reported by the next one.
            if (result.IsCanceled || result.Buffer.IsEmpty || await gate.PassAsync(host, closed).ConfigureAwait(false))
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
