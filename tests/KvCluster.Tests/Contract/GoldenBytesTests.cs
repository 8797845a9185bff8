using System.Globalization;
using Google.Protobuf;
using Google.Protobuf.Reflection;
using KvCluster.Processes;

namespace KvCluster.Tests.Contract;

/// <summary>
/// The encoded messages of version 1 of the contract: one line for each message, with every field set. Later versions must read these bytes, and write the
/// same for the same values, so a line may only be added, and a field only appended to its line.
/// </summary>
public sealed class GoldenBytesTests
{
    private static readonly string Golden = Path.Combine(Tools.Repository(), "tests", "KvCluster.Tests", "Contract", "v1.txt");

    private static readonly FileDescriptor[] Files =
    [
        V1.KvReflection.Descriptor, V1.ClusterReflection.Descriptor, KvCluster.Admin.V1.AdminReflection.Descriptor,
        Internal.V1.ReplicationReflection.Descriptor,
        Internal.V1.PlacementReflection.Descriptor, Internal.V1.RecordsReflection.Descriptor, Internal.V1.RecoveryReflection.Descriptor,
        Internal.V1.CoordinatorReflection.Descriptor,
    ];

    /// <summary>With KV_GOLDEN=1 the file is written anew, and the difference is for review.</summary>
    [Fact]
    public async Task Messages_AreEncodedAsInVersion1()
    {
        var lines = Examples().Select(static example => $"{example.Name} {Convert.ToHexStringLower(example.Message.ToByteArray())}").ToList();
        if (Environment.GetEnvironmentVariable("KV_GOLDEN") == "1")
            await File.WriteAllLinesAsync(Golden, lines);
        Assert.Equal(await File.ReadAllLinesAsync(Golden), lines);
    }

    [Fact]
    public async Task BytesOfVersion1_AreReadWithTheValuesThatWereWritten()
    {
        var examples = Examples().ToDictionary(static example => example.Name, static example => example.Message);
        foreach (var line in await File.ReadAllLinesAsync(Golden))
        {
            var (name, hex) = (line[..line.IndexOf(' ', StringComparison.Ordinal)], line[(line.IndexOf(' ', StringComparison.Ordinal) + 1)..]);
            var read = examples[name].Descriptor.Parser.ParseFrom(Convert.FromHexString(hex));
            Assert.True(examples[name].Equals(read), $"{name} was read as {read}");
        }
    }

    // A message of which one of several fields may be set has an example with each of them.
    private static IEnumerable<(string Name, IMessage Message)> Examples()
    {
        foreach (var type in Files.SelectMany(static file => file.MessageTypes).OrderBy(static type => type.FullName, StringComparer.Ordinal))
        {
            var choices = type.RealOneofCount == 0 ? [] : type.Oneofs.Take(type.RealOneofCount).Single().Fields;
            if (choices.Count == 0)
                yield return (type.FullName, Example(type, choice: 0));
            for (var choice = 0; choice < choices.Count; choice++)
                yield return (string.Create(CultureInfo.InvariantCulture, $"{type.FullName}.{choices[choice].Name}"), Example(type, choice));
        }
    }

    // Every value follows from the number of its field and differs from the default.
    private static IMessage Example(MessageDescriptor type, int choice)
    {
        var message = type.Parser.ParseFrom(ByteString.Empty);
        foreach (var field in type.Fields.InFieldNumberOrder())
        {
            if (field.RealContainingOneof is { } oneof && oneof.Fields[choice] != field)
                continue;
            if (!field.IsRepeated)
            {
                field.Accessor.SetValue(message, ValueOf(field, field.FieldNumber));
                continue;
            }
            var list = (System.Collections.IList)field.Accessor.GetValue(message);
            list.Add(ValueOf(field, field.FieldNumber));
            list.Add(ValueOf(field, field.FieldNumber + 300));
        }
        return message;
    }

    private static object ValueOf(FieldDescriptor field, int number) => field.FieldType switch
    {
        FieldType.Bool => true,
        FieldType.Bytes => ByteString.CopyFromUtf8($"bytes {number}"),
        FieldType.String => $"text {number}",
        FieldType.UInt32 or FieldType.Fixed32 => (uint)number + 1_000,
        FieldType.UInt64 or FieldType.Fixed64 => (ulong)number + (1UL << 40),
        FieldType.Int32 => number + 1_000,
        FieldType.Int64 => number + (1L << 40),
        FieldType.SInt64 => -number - (1L << 40),
        FieldType.Enum => field.EnumType.Values[1].Number,
        FieldType.Message => Example(field.MessageType, choice: 0),
        _ => throw new InvalidOperationException($"{field.FullName} is of a type that no message had; add a value for it."),
    };
}
