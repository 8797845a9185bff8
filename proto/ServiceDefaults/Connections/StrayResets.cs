// Drops RST_STREAM frames of streams that were never opened. gRPC's C core (Python, C++, Ruby, PHP) numbers a stream before it writes its headers, and resets
// it by that number if the call is cancelled in between. HTTP/2 calls that an error of the connection, and Kestrel ends the connection with all its calls
// (PROTOCOL_ERROR): twenty callers with deadlines of a few milliseconds broke a watch beside them several times a second. There is nothing to reset, so the
// frame can be ignored, as grpc-go does. Kestrel has no setting for it. Runs on Kestrel's threads, one at a time for each connection.
using System.Buffers;
using System.Buffers.Binary;
using System.IO.Pipelines;
using System.Runtime.CompilerServices;
using Microsoft.AspNetCore.Connections;
using Microsoft.AspNetCore.Server.Kestrel.Core;

namespace KvCluster.ServiceDefaults.Connections;

/// <summary>Keeps resets of streams that do not exist from the server.</summary>
internal static class StrayResets
{
    /// <summary>Adds this to a listener that speaks HTTP/2 only, after TLS.</summary>
    public static void Guard(ListenOptions listen) => listen.Use(next => connection => RunAsync(next, connection));

    private static async Task RunAsync(ConnectionDelegate next, ConnectionContext connection)
    {
        var transport = connection.Transport;
        connection.Transport = new PipeWithInput(new Reader(transport.Input), transport.Output);
        try
        {
            await next(connection).ConfigureAwait(false);
        }
        finally
        {
            connection.Transport = transport;
        }
    }

    /// <summary>
    /// Passes on what it reads, up to the next frame to be dropped or the header of a frame that has not arrived completely. Data is not copied: only the
    /// lengths of frames are followed.
    /// </summary>
    internal sealed class Reader(PipeReader inner) : PipeReader
    {
        private const int PrefaceBytes = 24;
        private const int HeaderBytes = 9;
        private const int ResetBytes = HeaderBytes + sizeof(uint);
        private const byte Headers = 1;
        private const byte Reset = 3;

        // The buffer that the reader was given last, to which the positions in AdvanceTo belong.
        private ReadOnlySequence<byte> _given;

        // Bytes from the first one that is not consumed on which may be passed on, and behind them the bytes to be dropped.
        private long _passed;
        private int _dropped;

        // Bytes that are left of the frame at the end of the passed bytes, or of the preface.
        private long _ofFrame = PrefaceBytes;
        private uint _lastOpened;

        [AsyncMethodBuilder(typeof(PoolingAsyncValueTaskMethodBuilder<>))]
        public override async ValueTask<ReadResult> ReadAsync(CancellationToken cancellationToken = default)
        {
            ReadResult passed;
            while (!TryPass(await inner.ReadAsync(cancellationToken).ConfigureAwait(false), out passed))
                continue;
            return passed;
        }

        public override bool TryRead(out ReadResult result)
        {
            while (inner.TryRead(out var read))
            {
                if (TryPass(read, out result))
                    return true;
            }
            result = default;
            return false;
        }

        public override void AdvanceTo(SequencePosition consumed) => AdvanceTo(consumed, consumed);

        public override void AdvanceTo(SequencePosition consumed, SequencePosition examined)
        {
            _passed -= _given.Slice(_given.Start, consumed).Length;
            if (_passed == 0 && _dropped > 0)
                Drop(consumed);
            else
                inner.AdvanceTo(consumed, examined);
        }

        public override void CancelPendingRead() => inner.CancelPendingRead();

        public override void Complete(Exception? exception = null) => inner.Complete(exception);

        public override ValueTask CompleteAsync(Exception? exception = null) => inner.CompleteAsync(exception);

        // Passes on what may be passed. False if there was nothing, and the inner reader waits for more.
        private bool TryPass(in ReadResult read, out ReadResult passed)
        {
            passed = read;
            _given = read.Buffer;
            // The reading gate drops what a connection has sent that was closed meanwhile.
            if (read.IsCompleted && _given.Length < _passed + _dropped)
                (_passed, _dropped) = (_given.Length, 0);
            if (_dropped == 0)
                Follow(_given.Slice(_passed));
            var isEnd = read.IsCompleted && _dropped == 0;
            // A frame that is not complete at the end of the connection is the server's to judge.
            if (isEnd)
                _passed = _given.Length;
            if (_passed > 0 || isEnd || read.IsCanceled)
            {
                passed = new ReadResult(_given.Slice(0, _passed), read.IsCanceled, isEnd);
                return true;
            }
            if (_dropped > 0)
                Drop(_given.Start);
            else
                inner.AdvanceTo(_given.Start, _given.End);
            return false;
        }

        private void Drop(SequencePosition from)
        {
            inner.AdvanceTo(_given.GetPosition(_dropped, from));
            _dropped = 0;
        }

        // Goes from frame to frame, and stops at one that is to be dropped.
        private void Follow(ReadOnlySequence<byte> ahead)
        {
            Span<byte> header = stackalloc byte[HeaderBytes];
            while (true)
            {
                var whole = Math.Min(_ofFrame, ahead.Length);
                (_passed, _ofFrame) = (_passed + whole, _ofFrame - whole);
                ahead = ahead.Slice(whole);
                if (ahead.Length < HeaderBytes)
                    return;
                ahead.Slice(0, HeaderBytes).CopyTo(header);
                var payloadBytes = (header[0] << 16) | BinaryPrimitives.ReadUInt16BigEndian(header[1..]);
                var stream = BinaryPrimitives.ReadUInt32BigEndian(header[5..]) & int.MaxValue;
                var kind = header[3];
                if (kind == Reset && payloadBytes == ResetBytes - HeaderBytes && stream > _lastOpened && stream % 2 != 0)
                {
                    if (ahead.Length >= ResetBytes)
                        _dropped = ResetBytes;
                    return;
                }
                if (kind == Headers)
                    _lastOpened = Math.Max(_lastOpened, stream);
                _ofFrame = HeaderBytes + payloadBytes;
            }
        }
    }
}
