using System.Buffers;
using System.IO.Pipelines;
using Grpc.Core;
using KvCluster.ServiceDefaults.Calls;
using Microsoft.AspNetCore.Http;
using Microsoft.AspNetCore.Http.Features;

namespace KvCluster.Tests.ServiceDefaults.Calls;

/// <summary>What arrives of the request of a call.</summary>
public sealed class RequestBodyTests
{
    /// <summary>
    /// A caller that cancelled its call just when its request had been read was logged as a failure of the handler, which had not begun: the stream was reset,
    /// and the call's token not yet cancelled.
    /// </summary>
    [Fact]
    public async Task Request_WhoseCallerResetsTheStreamWhileItIsTaken_IsNotAFailureOfTheHandler()
    {
        var context = new DefaultHttpContext();
        context.Features.Set<IRequestBodyPipeFeature>(new ResetPipe());
        var method = new ServedMethod(new Endpoint(requestDelegate: null, metadata: null, displayName: null), MethodType.Unary, RequestBytesMax: 1 << 20);
        var body = new RequestBody(context, method, arriving: null, sizes: null);
        var read = await body.ReadAsync();
        var failure = Assert.Throws<RpcException>(() => body.AdvanceTo(read.Buffer.End));
        Assert.Equal((StatusCode.Cancelled, true), (failure.StatusCode, body.WasGoneUnbegun));
    }

    /// <summary>A request that has arrived whole, and whose stream is reset before its bytes are given back, as Kestrel tells it.</summary>
    private sealed class ResetPipe : PipeReader, IRequestBodyPipeFeature
    {
        public PipeReader Reader => this;

        public override ValueTask<ReadResult> ReadAsync(CancellationToken cancellationToken = default)
        {
            byte[] frame = [0, 0, 0, 0, 2, 8, 1];
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
