using System.Buffers;
using System.IO.Pipelines;
using Google.Protobuf;
using Grpc.AspNetCore.Server;
using Grpc.AspNetCore.Server.Calls;
using Grpc.Core;
using KvCluster.Tests.Grpc.Proto;
using KvCluster.Tests.ServiceDefaults.Security;
using Microsoft.AspNetCore.Http.Features;

namespace KvCluster.Tests.Grpc;

/// <summary>How the only message of a request is read.</summary>
public sealed class RequestInputTests
{
    private static readonly Marshaller<EchoRequest> Marshaller = Marshallers.Create(
        static (message, context) => context.Complete(message.ToByteArray()),
        static context => EchoRequest.Parser.ParseFrom(context.PayloadAsReadOnlySequence()));

    /// <summary>
    /// A caller that cancelled its call just when its request had been read was logged as a failure of the handler, which had not begun: the stream was reset,
    /// and the call's token not yet cancelled.
    /// </summary>
    [Fact]
    public async Task Request_WhoseCallerResetsTheStreamWhileItIsTaken_IsNotAFailureOfTheHandler()
    {
        var log = new LinesLog();
        var call = new ServerCall(new CallSettings(new GrpcServiceOptions(), memory: null, unreadable: null, sizes: null, log));
        call.Requests.Begin(new FeatureCollection(), new ResetPipe(new EchoRequest { DelayMs = 1 }), encoding: null, bytesMax: 1 << 20);
        var failure = await Assert.ThrowsAsync<IOException>(() => call.Requests.ReadOnlyAsync(Marshaller));
        call.Fail(failure, "/Echo/Unary");
        Assert.Equal(StatusCode.Cancelled, call.Status.StatusCode);
        Assert.Empty(log.Lines);
    }

    /// <summary>A request that has arrived whole, and whose stream is reset before its bytes are given back, as Kestrel tells it.</summary>
    private sealed class ResetPipe(EchoRequest message) : PipeReader
    {
        public override ValueTask<ReadResult> ReadAsync(CancellationToken cancellationToken = default)
        {
            var bytes = message.ToByteArray();
            byte[] frame = [0, 0, 0, 0, (byte)bytes.Length, .. bytes];
            return ValueTask.FromResult(new ReadResult(new ReadOnlySequence<byte>(frame), isCanceled: false, isCompleted: true));
        }

        public override bool TryRead(out ReadResult result) => throw new NotSupportedException();

        public override void AdvanceTo(SequencePosition consumed) => AdvanceTo(consumed, consumed);

        public override void AdvanceTo(SequencePosition consumed, SequencePosition examined) => throw new IOException("The client reset the request stream.");

        public override void CancelPendingRead()
        {
        }

        public override void Complete(Exception? exception = null)
        {
        }
    }
}
