namespace Grpc.Core;

/// <summary>How the messages of a stream are written from now on.</summary>
internal sealed class WriteOptions(WriteFlags flags = WriteFlags.None)
{
    public static readonly WriteOptions Default = new();

    public WriteFlags Flags { get; } = flags;
}
