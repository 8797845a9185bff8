namespace Grpc.Core;

/// <summary>How one message of a stream is written.</summary>
[Flags]
internal enum WriteFlags
{
    None = 0,

    /// <summary>More messages follow at once, so this one need not be sent alone.</summary>
    BufferHint = 1,

    /// <summary>Accepted for compatibility; this stack never compresses what it sends.</summary>
    NoCompress = 2,
}
