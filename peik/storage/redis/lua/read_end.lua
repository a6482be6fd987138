-- Runs the reading operations {{name, argument …} …} on one snapshot.
local answers = {}
for index, one in ipairs(decode(ARGV[1])) do
    answers[index] = ops[one[1]](one[2], one[3], one[4], one[5], one[6], one[7], one[8])
end
return answers
