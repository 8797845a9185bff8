namespace Grpc.Core;

/// <summary>Options of one call.</summary>
/// <param name="headers">Metadata sent with the request; not changed by the call.</param>
/// <param name="deadline">UTC time after which the call ends with DEADLINE_EXCEEDED on both sides; null means never.</param>
/// <param name="cancellationToken">Ends the call with CANCELLED on both sides.</param>
/// <param name="writeOptions">Initial options of a request stream.</param>
internal readonly struct CallOptions(
    Metadata? headers = null,
    DateTime? deadline = null,
    CancellationToken cancellationToken = default,
    WriteOptions? writeOptions = null)
{
    public Metadata? Headers { get; } = headers;

    public DateTime? Deadline { get; } = deadline;

    public CancellationToken CancellationToken { get; } = cancellationToken;

    public WriteOptions? WriteOptions { get; } = writeOptions;

    public CallOptions WithHeaders(Metadata headers) => new(headers, Deadline, CancellationToken, WriteOptions);

    public CallOptions WithDeadline(DateTime deadline) => new(Headers, deadline, CancellationToken, WriteOptions);

    public CallOptions WithCancellationToken(CancellationToken cancellationToken) => new(Headers, Deadline, cancellationToken, WriteOptions);

    public CallOptions WithWriteOptions(WriteOptions writeOptions) => new(Headers, Deadline, CancellationToken, writeOptions);
}
