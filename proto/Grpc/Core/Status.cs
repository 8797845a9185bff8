namespace Grpc.Core;

/// <summary>The result of a call.</summary>
/// <param name="statusCode">The code on the wire.</param>
/// <param name="detail">Text for people, sent as <c>grpc-message</c>.</param>
/// <param name="debugException">The cause on this side; never sent.</param>
internal readonly struct Status(StatusCode statusCode, string detail, Exception? debugException)
{
    /// <summary>OK without text.</summary>
    public static readonly Status DefaultSuccess = new(StatusCode.OK, "");

    /// <summary>CANCELLED without text.</summary>
    public static readonly Status DefaultCancelled = new(StatusCode.Cancelled, "");

    public Status(StatusCode statusCode, string detail)
        : this(statusCode, detail, null)
    {
    }

    public StatusCode StatusCode { get; } = statusCode;

    public string Detail { get; } = detail;

    public Exception? DebugException { get; } = debugException;

    /// <inheritdoc/>
    public override string ToString() => $"Status(StatusCode=\"{StatusCode}\", Detail=\"{Detail}\")";
}

/// <summary>The status codes of gRPC, with their numbers on the wire.</summary>
internal enum StatusCode
{
    OK = 0,
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}
