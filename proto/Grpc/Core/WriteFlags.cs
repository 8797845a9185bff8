namespace Grpc.Core;

/// <summary>How one message of a stream is written.</summary>
[Flags]
internal enum WriteFlags
{
    None = 0,

    /// <summary>More follows at once: do not send for this message alone.</summary>
    BufferHint = 1,

    /// <summary>Accepted for compatibility; this stack never compresses what it sends.</summary>
    NoCompress = 2,
}
