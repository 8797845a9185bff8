using System.IO.Pipelines;
using Microsoft.AspNetCore.Http.Features;

namespace KvCluster.Tests.ServiceDefaults.Calls;

/// <summary>A replacement for Kestrel's pipe that keeps what is written.</summary>
internal sealed class RecordedPipe : PipeWriter, IHttpResponseBodyFeature
{
    private readonly Lock _gate = new();
    private byte[] _block = [];
    private int _unread;
    private TaskCompletionSource<FlushResult>? _flushing;

    public List<byte> Bytes { get; } = [];

    /// <summary>Whether a flush waits for <see cref="Read"/>, as it does while a caller does not read.</summary>
    public bool IsHeld { get; set; }

    /// <summary>Whether a flush waits.</summary>
    public bool IsWaiting
    {
        get
        {
            lock (_gate)
                return _flushing is not null;
        }
    }

    /// <summary>Bytes since the last <see cref="Read"/>.</summary>
    public int Unread => Volatile.Read(ref _unread);

    public PipeWriter Writer => this;

    public Stream Stream => throw new NotSupportedException();

    public override void Advance(int bytes)
    {
        lock (_gate)
        {
            Bytes.AddRange(_block.AsSpan(0, bytes));
            _unread += bytes;
        }
    }

    public override Memory<byte> GetMemory(int sizeHint = 0) => _block = new byte[Math.Max(sizeHint, 4096)];

    public override Span<byte> GetSpan(int sizeHint = 0) => GetMemory(sizeHint).Span;

    public override ValueTask<FlushResult> FlushAsync(CancellationToken cancellationToken = default)
    {
        lock (_gate)
        {
            if (!IsHeld)
                return default;
            _flushing = new TaskCompletionSource<FlushResult>();
            return new ValueTask<FlushResult>(_flushing.Task);
        }
    }

    /// <summary>The caller has read everything, and the flush that waits ends so.</summary>
    public void Read(FlushResult result)
    {
        TaskCompletionSource<FlushResult>? flushing;
        lock (_gate)
        {
            _unread = 0;
            (flushing, _flushing) = (_flushing, null);
        }
        flushing?.SetResult(result);
    }

    public override void CancelPendingFlush()
    {
    }

    public override void Complete(Exception? exception = null)
    {
    }

    public void DisableBuffering() => throw new NotSupportedException();

    public Task StartAsync(CancellationToken cancellationToken = default) => throw new NotSupportedException();

    public Task SendFileAsync(string path, long offset, long? count, CancellationToken cancellationToken = default) => throw new NotSupportedException();

    public Task CompleteAsync() => throw new NotSupportedException();
}
